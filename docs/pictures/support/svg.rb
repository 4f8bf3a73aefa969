# frozen_string_literal: true

# What the pictures of the guide have in common.
module SVG
  COLOURS = { fiber: '#dcecff', core: '#f4f1ea', kernel: '#e3f4e1', ready: '#fdeccb' }.freeze

  module_function

  def text(x, y, words, size: 13, fill: '#222', weight: 'normal', anchor: 'middle')
    words = words.to_s.gsub('&', '&amp;').gsub('<', '&lt;')
    %(<text x="#{x}" y="#{y}" font-size="#{size}" fill="#{fill}" font-weight="#{weight}" text-anchor="#{anchor}">#{words}</text>)
  end

  # A bold line above a pale one.
  def box(x, y, width, height, kind, title, below)
    %(<rect x="#{x}" y="#{y}" width="#{width}" height="#{height}" rx="9" fill="#{COLOURS.fetch(kind)}" stroke="#8a8577"/>) +
      text(x + width / 2, y + 25, title, weight: 'bold') + text(x + width / 2, y + 44, below, size: 11.5, fill: '#555')
  end

  def line(points, arrow: true, dashed: false, colour: '#555')
    %(<polyline points="#{points.map { |point| point.join(',') }.join(' ')}" fill="none" stroke="#{colour}" stroke-width="1.5"#{' stroke-dasharray="5 4"' if dashed}#{' marker-end="url(#tip)"' if arrow}/>)
  end

  def page(title, width, height, *body)
    [%(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 #{width} #{height}" width="#{width}" height="#{height}" font-family="system-ui, sans-serif">),
     "<title>#{title}</title>",
     '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#555"/></marker></defs>',
     %(<rect width="#{width}" height="#{height}" fill="#fff"/>), *body, '</svg>']
  end
end
