import { element, find, avatar } from "./dom.js";

// The list of rooms with its badges, and who is in the one that is shown.
export class Rooms {
  #seen = new Map(); // name => how many messages had been there when it was last looked at
  #rooms = [];
  #people = [];

  constructor({ enter }) {
    this.enter = enter;
    this.current = null;
    this.#drawers();
  }

  get unread() {
    return this.#rooms.reduce((sum, room) => sum + this.#unread(room), 0);
  }

  update(rooms) {
    this.#rooms = rooms;
    for (const room of rooms) if (!this.#seen.has(room.name) || room.name === this.current) this.#seen.set(room.name, room.count);
    this.#render();
  }

  // The server has been away and counts from nothing again.
  forget() {
    this.#seen.clear();
  }

  show({ name, topic, members }, me) {
    this.current = name;
    this.me = me;
    find("room-name").textContent = name;
    find("room-topic").textContent = topic || "Somebody opened this room";
    this.#people = members;
    const room = this.#rooms.find((one) => one.name === name);
    if (room) this.#seen.set(name, room.count);
    this.#render();
    this.#renderPeople();
    this.close();
  }

  joined(name) {
    this.#people.push(name);
    this.#renderPeople();
  }

  left(name) {
    const place = this.#people.indexOf(name);
    if (place >= 0) this.#people.splice(place, 1);
    this.#renderPeople();
  }

  close() {
    document.body.classList.remove("rail-open", "people-open");
    find("rail-open").setAttribute("aria-expanded", "false");
    find("people-open").setAttribute("aria-expanded", "false");
  }

  #unread(room) {
    return room.name === this.current ? 0 : Math.max(0, room.count - (this.#seen.get(room.name) ?? room.count));
  }

  #render() {
    const focused = document.activeElement?.dataset?.room;
    find("rooms").replaceChildren(...this.#rooms.map((room) => this.#item(room)));
    if (focused) find("rooms").querySelector(`[data-room="${CSS.escape(focused)}"]`)?.focus();
    find("unread-dot").hidden = this.unread === 0;
    document.title = `${this.unread ? `(${this.unread}) ` : ""}${this.current ? `#${this.current} · ` : ""}Polyphony chat`;
  }

  #item(room) {
    const unread = this.#unread(room);
    const here = room.name === this.current;
    return element("li", {},
      element("button", { class: "room", type: "button", "data-room": room.name, "aria-current": here ? "page" : null, onclick: () => this.enter(room.name) },
        element("span", { class: "hash", "aria-hidden": "true" }, "#"),
        element("span", { class: "room-name" }, room.name),
        unread ? element("span", { class: "badge" }, unread > 99 ? "99+" : String(unread), element("span", { class: "visually-hidden" }, " unread")) : null,
        room.online && !unread ? element("span", { class: "online" }, String(room.online), element("span", { class: "visually-hidden" }, " here")) : null));
  }

  #renderPeople() {
    const names = [...this.#people].sort((a, b) => a.localeCompare(b));
    find("people-list").replaceChildren(...names.map((name) =>
      element("li", {}, avatar(name), element("bdi", {}, name), name === this.me ? element("span", { class: "you" }, "you") : null)));
    find("people-count").textContent = String(names.length);
  }

  // On a narrow screen the two lists slide in from the sides.
  #drawers() {
    const toggle = (button, name, inside) => find(button).addEventListener("click", () => {
      const open = document.body.classList.toggle(name);
      find(button).setAttribute("aria-expanded", String(open));
      if (open) find(inside).querySelector("button, a, input")?.focus();
    });
    toggle("rail-open", "rail-open", "rail");
    toggle("people-open", "people-open", "people");
    const back = (button) => { this.close(); find(button).focus(); };
    find("rail-close").addEventListener("click", () => back("rail-open"));
    find("veil").addEventListener("click", () => this.close());
    document.addEventListener("keydown", (event) => {
      if (event.key !== "Escape") return;
      if (document.body.classList.contains("rail-open")) back("rail-open");
      else if (document.body.classList.contains("people-open")) back("people-open");
    });
  }
}
