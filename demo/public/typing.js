import { element, find } from "./dom.js";

const SHOWN = 4000; // milliseconds after the last sign
const EVERY = 2500; // between two signs of ours

// Who is typing, and that we are.
export class Typing {
  #timers = new Map(); // name => timer
  #told = 0;

  constructor({ tell }) {
    this.tell = tell;
  }

  keyPressed() {
    const now = Date.now();
    if (now - this.#told < EVERY) return;
    this.#told = now;
    this.tell();
  }

  sent() {
    this.#told = 0;
  }

  see(name) {
    clearTimeout(this.#timers.get(name));
    this.#timers.set(name, setTimeout(() => this.stop(name), SHOWN));
    this.#render();
  }

  stop(name) {
    clearTimeout(this.#timers.get(name));
    if (this.#timers.delete(name)) this.#render();
  }

  clear() {
    for (const name of [...this.#timers.keys()]) this.stop(name);
  }

  #render() {
    const names = [...this.#timers.keys()];
    const text = names.length === 0 ? "" : names.length === 1 ? `${names[0]} is typing`
      : names.length === 2 ? `${names[0]} and ${names[1]} are typing` : "Several people are typing";
    const dots = element("span", { class: "dots" }, element("i"), element("i"), element("i"));
    find("typing").replaceChildren(...(text ? [dots, element("bdi", {}, text)] : []));
  }
}
