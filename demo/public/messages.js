import { element, find, avatar, hue } from "./dom.js";

const TOGETHER = 5 * 60; // seconds: what one person says within is one group
const NEAR = 80; // pixels from the end that still count as being there

const clock = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat(undefined, { weekday: "long", day: "numeric", month: "long" });

// The conversation of one room: what is stored, in the order of ids, then what is still on its way.
export class Messages {
  #list = find("messages");
  #stream = find("stream");
  #jump = find("jump");
  #known = new Map(); // id => message
  #pending = new Map(); // nonce => message
  #me = null;

  constructor({ retry, older }) {
    this.retry = retry;
    this.older = older;
    this.#jump.addEventListener("click", () => this.#toEnd(true));
    this.#stream.addEventListener("scroll", () => { if (this.#atEnd()) this.#jump.hidden = true; }, { passive: true });
    find("older-button").addEventListener("click", () => this.older(this.firstId));
    // A keyboard that slides in takes room away from the end.
    new ResizeObserver(() => { if (this.stuck) this.#toEnd(false); }).observe(this.#stream);
    this.#stream.addEventListener("scroll", () => { this.stuck = this.#atEnd(); }, { passive: true });
    this.stuck = true;
  }

  get firstId() {
    const ids = [...this.#known.keys()];
    return ids.length ? Math.min(...ids) : null;
  }

  // A room that was entered, or came back to.
  reset(room, me, messages, page) {
    const same = this.room === room && this.#me === me;
    this.#me = me;
    if (!same || !messages.some((message) => this.#known.has(message.id))) this.#known.clear();
    if (this.room !== room) this.#pending.clear();
    this.room = room;
    for (const message of messages) this.#known.set(message.id, message);
    this.#forgetArrived(messages);
    find("older").hidden = messages.length < page;
    this.#render();
    this.#toEnd(false);
  }

  // Stored after all: only the news of it was lost with the connection.
  #forgetArrived(messages) {
    for (const [nonce, { text, at }] of this.#pending) {
      if (messages.some((one) => one.name === this.#me && one.text === text && one.at > at - 10)) this.#pending.delete(nonce);
    }
  }

  prepend(messages, page) {
    const height = this.#stream.scrollHeight;
    for (const message of messages) this.#known.set(message.id, message);
    find("older").hidden = messages.length < page;
    this.#render();
    this.#stream.scrollTop += this.#stream.scrollHeight - height;
  }

  add(message) {
    const mine = message.nonce && this.#pending.delete(message.nonce);
    const end = this.#atEnd() || mine;
    this.#known.set(message.id, message);
    this.#render();
    if (end) this.#toEnd(!mine);
    else this.#jump.hidden = false;
  }

  // Shown at once, paler, until the server says that it is stored.
  expect(nonce, text) {
    this.#pending.set(nonce, { name: this.#me, text, at: Date.now() / 1000, nonce, state: "pending" });
    this.#render();
    this.#toEnd(false);
  }

  fail(nonce) {
    const message = this.#pending.get(nonce);
    if (!message) return;
    message.state = "failed";
    this.#render();
  }

  failAll() {
    for (const nonce of this.#pending.keys()) this.fail(nonce);
  }

  #render() {
    const messages = [...this.#known.values()].sort((a, b) => a.id - b.id).concat([...this.#pending.values()]);
    const rows = [];
    let before = null;
    for (const message of messages) {
      const newDay = !before || dayOf(before) !== dayOf(message);
      if (newDay) rows.push({ key: `day-${dayOf(message)}`, build: () => separator(message) });
      const first = newDay || before.name !== message.name || message.at - before.at > TOGETHER;
      const key = `${message.id ?? message.nonce}-${first ? 1 : 0}-${message.state ?? ""}-${message.name === this.#me}`;
      rows.push({ key, build: () => this.#bubble(message, first) });
      before = message;
    }
    this.#patch(rows);
    find("blank").hidden = messages.length > 0;
  }

  // Keeps the elements that stay, so that nothing flickers and screen readers hear only what is new.
  #patch(rows) {
    const present = new Map([...this.#list.children].map((node) => [node.dataset.key, node]));
    let place = this.#list.firstElementChild;
    for (const { key, build } of rows) {
      const kept = present.get(key);
      present.delete(key);
      if (kept && kept === place) { place = place.nextElementSibling; continue; }
      const node = kept ?? build();
      node.dataset.key = key;
      this.#list.insertBefore(node, place);
    }
    for (const node of present.values()) node.remove();
  }

  #bubble(message, first) {
    const mine = message.name === this.#me;
    const failed = message.state === "failed";
    const classes = ["message", mine ? "mine" : "", first ? "first" : "", message.state ?? ""].join(" ");
    const time = new Date(message.at * 1000);
    return element("li", { class: classes },
      mine ? null : first ? avatar(message.name) : element("span", { class: "avatar-gap" }),
      element("div", { class: "message-body" },
        first ? head(message, mine, time) : element("bdi", { class: "visually-hidden" }, mine ? "You" : message.name),
        element("p", { class: "text", dir: "auto", title: time.toLocaleString() }, message.text),
        failed ? element("button", { class: "retry", type: "button", onclick: () => this.#retry(message) }, "Not sent. Try again") : null));
  }

  #retry(message) {
    this.#pending.delete(message.nonce);
    this.#render();
    this.retry(message.text);
  }

  #atEnd() {
    return this.#stream.scrollHeight - this.#stream.scrollTop - this.#stream.clientHeight < NEAR;
  }

  #toEnd(smoothly) {
    const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
    this.#stream.scrollTo({ top: this.#stream.scrollHeight, behavior: smoothly && !calm ? "smooth" : "instant" });
    this.#jump.hidden = true;
    this.stuck = true;
  }
}

function head(message, mine, time) {
  return element("p", { class: "message-head" },
    element("bdi", { class: `author hue-${hue(message.name)}${mine ? " visually-hidden" : ""}` }, mine ? "You" : message.name),
    element("time", { datetime: time.toISOString() }, clock.format(time)));
}

function dayOf(message) {
  return new Date(message.at * 1000).toDateString();
}

function separator(message) {
  const date = new Date(message.at * 1000);
  const today = date.toDateString() === new Date().toDateString();
  return element("li", { class: "day" }, element("span", {}, today ? "Today" : day.format(date)));
}
