// A WebSocket that comes back: after half a second, then twice as long each time, up to 15 seconds; a random part keeps
// many pages from coming back all at once.
export class Connection extends EventTarget {
  #socket = null;
  #failures = 0;
  #timer = null;
  #wanted = false;

  constructor(path) {
    super();
    this.url = `${location.protocol === "https:" ? "wss" : "ws"}://${location.host}${path}`;
    addEventListener("online", () => this.hurry());
    document.addEventListener("visibilitychange", () => { if (!document.hidden) this.hurry(); });
  }

  open() {
    this.#wanted = true;
    this.#connect();
  }

  // Ends it for good, or until it is opened again.
  close() {
    this.#wanted = false;
    clearTimeout(this.#timer);
    this.#socket?.close(1000);
    this.#socket = null;
  }

  // Does not wait any longer if it was going to try again.
  hurry() {
    if (this.#wanted && !this.#socket) this.#connect();
  }

  get ready() {
    return this.#socket?.readyState === WebSocket.OPEN;
  }

  send(message) {
    if (!this.ready) return false;
    this.#socket.send(JSON.stringify(message));
    return true;
  }

  // It is not just a connection, somebody answered.
  settled() {
    this.#failures = 0;
  }

  #connect() {
    clearTimeout(this.#timer);
    const socket = new WebSocket(this.url);
    this.#socket = socket;
    this.#tell("connecting");
    socket.onopen = () => this.#tell("open");
    socket.onmessage = (event) => {
      if (socket === this.#socket) this.#tell("message", JSON.parse(event.data));
    };
    socket.onclose = (event) => {
      if (socket !== this.#socket) return;
      this.#socket = null;
      this.#tell("closed", { code: event.code });
      if (this.#wanted) this.#later();
    };
  }

  #later() {
    const longest = Math.min(15, 0.5 * 2 ** this.#failures++);
    const seconds = longest * (0.5 + Math.random() / 2);
    this.#timer = setTimeout(() => this.#connect(), seconds * 1000);
    this.#tell("waiting", { seconds });
  }

  #tell(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}
