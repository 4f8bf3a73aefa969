// The only way elements are made here. Text becomes a text node, whatever is in it.
export function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

export const find = (id) => document.getElementById(id);

export function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

// The same person has the same colour everywhere.
export function hue(name) {
  let sum = 2166136261; // FNV-1a
  for (const character of name.toLowerCase()) sum = Math.imul(sum ^ character.codePointAt(0), 16777619) >>> 0;
  return (((sum >>> 16) ^ sum) >>> 0) % 8;
}

export function avatar(name) {
  const initial = Array.from(name)[0] ?? "?";
  return element("span", { class: `avatar hue-${hue(name)}`, "aria-hidden": "true" }, initial.toUpperCase());
}
