import { find, avatar } from "./dom.js";
import { Connection } from "./connection.js";
import { Messages } from "./messages.js";
import { Rooms } from "./rooms.js";
import { Typing } from "./typing.js";

const PAGE = 50; // messages the server sends at a time
const FIRST_ROOM = "lobby";

const connection = new Connection("/chat");
const messages = new Messages({ retry: say, older: (before) => connection.send({ type: "history", room: messages.room, before }) });
const rooms = new Rooms({ enter });
const typing = new Typing({ tell: () => connection.send({ type: "typing" }) });

const me = { name: remembered(localStorage, "name"), session: session(), welcome: false };

// --- what is remembered -------------------------------------------------------------------------

function remembered(storage, key) {
  try { return storage.getItem(key); } catch { return null; }
}

function remember(storage, key, value) {
  try { storage.setItem(key, value); } catch { /* private mode: for this page only */ }
}

// Whoever has it is the same tab, and gets its name back when the connection was lost.
function session() {
  const known = remembered(sessionStorage, "session");
  if (known) return known;
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  const made = Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
  remember(sessionStorage, "session", made);
  return made;
}

// --- the room -------------------------------------------------------------------------------------

function wantedRoom() {
  return decodeURIComponent(location.hash.slice(1)) || FIRST_ROOM;
}

function enter(name) {
  if (name === rooms.current) { rooms.close(); return; }
  connection.send({ type: "join", room: name });
}

addEventListener("hashchange", () => { if (wantedRoom() !== rooms.current) enter(wantedRoom()); });

find("new-room").addEventListener("submit", (event) => {
  event.preventDefault();
  const field = find("new-room-name");
  const name = field.value.trim().replace(/^#/, "").toLowerCase().replace(/\s+/g, "-");
  if (!name) return;
  find("new-room-hint").textContent = "";
  enter(name);
  field.value = "";
});

// --- saying something -----------------------------------------------------------------------------

const field = find("composer-text");
const send = document.querySelector(".send");
let count = 0;

function say(text) {
  const nonce = `${Date.now().toString(36)}-${++count}`;
  messages.expect(nonce, text);
  if (!connection.send({ type: "say", text, nonce })) messages.fail(nonce);
}

function fit() {
  field.style.height = "auto";
  field.style.height = `${Math.min(field.scrollHeight, 180)}px`;
  const left = field.maxLength - field.value.length;
  send.disabled = field.value.trim() === "";
  hint(left < 200 ? `${left} characters left` : "");
}

function hint(text) {
  find("composer-hint").textContent = text;
}

field.addEventListener("input", () => {
  fit();
  if (field.value.trim()) typing.keyPressed();
});

field.addEventListener("keydown", (event) => {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
  event.preventDefault();
  find("composer").requestSubmit();
});

find("composer").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = field.value.trim();
  if (!text) return;
  say(text);
  field.value = "";
  typing.sent();
  fit();
  field.focus();
});

// --- the name -------------------------------------------------------------------------------------

const welcome = find("welcome");

function askName(error = "") {
  find("welcome-error").textContent = error;
  find("welcome-name").value = me.name ?? "";
  if (!welcome.open) welcome.showModal();
  find("welcome-name").select();
}

welcome.addEventListener("cancel", (event) => { if (!me.welcome) event.preventDefault(); });

find("welcome-form").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = find("welcome-name").value.trim();
  if (!name) return;
  me.name = name;
  me.welcome = false;
  connection.close();
  connection.open();
});

find("my-name").addEventListener("click", () => askName());

function named(name) {
  me.name = name;
  me.welcome = true;
  remember(localStorage, "name", name);
  find("my-name").textContent = name;
  find("my-avatar").replaceWith(Object.assign(avatar(name), { id: "my-avatar" }));
  if (welcome.open) welcome.close();
}

// --- the connection -------------------------------------------------------------------------------

function status(state, text) {
  find("status").dataset.state = state;
  find("status-text").textContent = text;
}

connection.addEventListener("connecting", () => status("connecting", "connecting"));
connection.addEventListener("open", () => connection.send({ type: "hello", name: me.name, session: me.session, room: wantedRoom() }));
connection.addEventListener("closed", () => { messages.failAll(); typing.clear(); rooms.forget(); });
connection.addEventListener("waiting", ({ detail }) => status("waiting", detail.seconds < 1.5 ? "reconnecting" : `again in ${Math.round(detail.seconds)} s`));

const handlers = {
  welcome({ name }) {
    connection.settled();
    named(name);
    status("live", location.protocol === "https:" ? "live, encrypted" : "live");
  },
  rooms: ({ rooms: list }) => rooms.update(list),
  room(room) {
    rooms.show(room, me.name);
    messages.reset(room.name, me.name, room.messages, PAGE);
    typing.clear();
    if (wantedRoom() !== room.name) history.replaceState(null, "", `#${room.name}`);
    if (!matchMedia("(pointer: coarse)").matches && !welcome.open) field.focus();
  },
  history: ({ room, messages: older }) => { if (room === messages.room) messages.prepend(older, PAGE); },
  message(message) {
    if (message.room !== messages.room) return;
    typing.stop(message.name);
    messages.add(message);
  },
  joined: ({ room, name }) => { if (room === rooms.current) rooms.joined(name); },
  left: ({ room, name }) => { if (room === rooms.current) { rooms.left(name); typing.stop(name); } },
  typing: ({ room, name }) => { if (room === rooms.current) typing.see(name); },
  error({ code, text, nonce }) {
    if (["name", "taken", "full", "session"].includes(code)) { connection.close(); askName(text); return; }
    if (nonce) messages.fail(nonce);
    if (code === "room") find("new-room-hint").textContent = text;
    else hint(text);
  },
};

connection.addEventListener("message", ({ detail }) => handlers[detail.type]?.(detail));

if (me.name) connection.open();
else askName();
fit();
