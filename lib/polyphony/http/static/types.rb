# frozen_string_literal: true

module Polyphony
  module HTTP
    class Static
      # What files are, by their ending. Texts are taken to be UTF-8.
      TYPES = {
        'aac' => 'audio/aac', 'apng' => 'image/apng', 'atom' => 'application/atom+xml', 'avif' => 'image/avif',
        'bin' => 'application/octet-stream', 'bmp' => 'image/bmp', 'css' => 'text/css', 'csv' => 'text/csv', 'doc' => 'application/msword',
        'docx' => 'application/vnd.openxmlformats-officedocument.wordprocessingml.document',
        'eot' => 'application/vnd.ms-fontobject', 'epub' => 'application/epub+zip', 'flac' => 'audio/flac', 'gif' => 'image/gif',
        'gz' => 'application/gzip', 'htm' => 'text/html', 'html' => 'text/html', 'ico' => 'image/x-icon', 'ics' => 'text/calendar',
        'jpeg' => 'image/jpeg', 'jpg' => 'image/jpeg', 'js' => 'text/javascript', 'json' => 'application/json',
        'jsonld' => 'application/ld+json', 'jxl' => 'image/jxl', 'm4a' => 'audio/mp4', 'm4v' => 'video/mp4', 'map' => 'application/json',
        'md' => 'text/markdown', 'mjs' => 'text/javascript', 'mov' => 'video/quicktime', 'mp3' => 'audio/mpeg', 'mp4' => 'video/mp4',
        'mpeg' => 'video/mpeg', 'odp' => 'application/vnd.oasis.opendocument.presentation',
        'ods' => 'application/vnd.oasis.opendocument.spreadsheet', 'odt' => 'application/vnd.oasis.opendocument.text', 'oga' => 'audio/ogg',
        'ogg' => 'audio/ogg', 'ogv' => 'video/ogg', 'opus' => 'audio/opus', 'otf' => 'font/otf', 'pdf' => 'application/pdf',
        'png' => 'image/png', 'ppt' => 'application/vnd.ms-powerpoint',
        'pptx' => 'application/vnd.openxmlformats-officedocument.presentationml.presentation', 'rb' => 'text/plain',
        'rss' => 'application/rss+xml', 'rtf' => 'application/rtf', 'svg' => 'image/svg+xml', 'tar' => 'application/x-tar',
        'tif' => 'image/tiff', 'tiff' => 'image/tiff', 'toml' => 'application/toml', 'ts' => 'video/mp2t', 'ttf' => 'font/ttf',
        'txt' => 'text/plain', 'vtt' => 'text/vtt', 'wasm' => 'application/wasm', 'wav' => 'audio/wav', 'weba' => 'audio/webm',
        'webm' => 'video/webm', 'webmanifest' => 'application/manifest+json', 'webp' => 'image/webp', 'woff' => 'font/woff',
        'woff2' => 'font/woff2', 'xhtml' => 'application/xhtml+xml', 'xls' => 'application/vnd.ms-excel',
        'xlsx' => 'application/vnd.openxmlformats-officedocument.spreadsheetml.sheet', 'xml' => 'application/xml', 'yaml' => 'application/yaml',
        'yml' => 'application/yaml', 'zip' => 'application/zip', 'zst' => 'application/zstd', '7z' => 'application/x-7z-compressed'
      }.freeze

      # @param path [String]
      # @param types [Hash{String => String}] of the caller's, by ending, without the dot
      # @return [String] the content type of a file, by its name
      def self.type_of(path, types = {})
        ending = ::File.extname(path).delete_prefix('.').downcase
        type = types[ending] || TYPES[ending] || 'application/octet-stream'
        type.start_with?('text/') && !type.include?(';') ? "#{type}; charset=utf-8" : type
      end
    end
  end
end
