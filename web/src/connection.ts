// The way to the server: requests with the token, and a socket that comes back by itself.

import { Signal } from "./dom";
import type { Abstained, Apply, Cancelled, Failed, HunkSent, Merged, ModelState, Outcome, ProgressSent, ToPage } from "./wire";

const TOKEN_KEY = "etude.token";
const FIRST_RETRY_MS = 250;
const LONGEST_RETRY_MS = 4000;

/** connecting: first try; open; lost: trying again; refused: the token is not (or no longer) the server's. */
export type Link = "connecting" | "open" | "lost" | "refused";

/** The server said no, or did not answer (status 0); `message` is for the person. */
export class RequestFailed extends Error {
  constructor(
    readonly error: string,
    message: string,
    readonly status: number,
  ) {
    super(message);
  }
}

/** The token of the address bar's fragment, moved to this tab's own storage so that a copied address has none. */
export function takeToken(): string {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(TOKEN_KEY, given);
    history.replaceState(null, "", location.pathname);
  }
  return sessionStorage.getItem(TOKEN_KEY) ?? "";
}

interface Running {
  settle: (outcome: Outcome) => void;
  progress: (progress: ProgressSent) => void;
  hunk: (hunk: HunkSent) => void;
}

export class Connection {
  readonly linkChanged = new Signal<Link>();
  readonly modelChanged = new Signal<ModelState>();
  link: Link = "connecting";
  private socket: WebSocket | null = null;
  private retryMs = FIRST_RETRY_MS;
  private readonly running = new Map<string, Running>();
  private lastId = 0;

  constructor(private readonly token: string) {}

  async get<T>(path: string, query: Record<string, string> = {}): Promise<T> {
    const search = new URLSearchParams(query).toString();
    return this.request<T>(search ? `${path}?${search}` : path, { method: "GET" });
  }

  async post<T>(path: string, body: object): Promise<T> {
    return this.request<T>(path, { method: "POST", body: JSON.stringify(body) });
  }

  private async request<T>(path: string, init: RequestInit): Promise<T> {
    const headers = { authorization: `Bearer ${this.token}`, "content-type": "application/json" };
    let response: Response;
    try {
      response = await fetch(path, { ...init, headers });
    } catch {
      throw new RequestFailed("ConnectionLost", "etude does not answer. Is it still running in its terminal?", 0);
    }
    const body: unknown = await response.json().catch(() => null);
    if (response.ok) return body as T;
    const failure = body as { error: string; message: string } | null;
    if (response.status === 401) this.become("refused");
    throw new RequestFailed(
      failure?.error ?? "Refused",
      failure?.message ?? `The server answered ${response.status}.`,
      response.status,
    );
  }

  socketTo(path: string): WebSocket {
    return new WebSocket(`ws://${location.host}${path}`, ["etude", `etude.token.${this.token}`]);
  }

  connect(): void {
    const socket = this.socketTo("/ws");
    this.socket = socket;
    socket.onopen = () => {
      this.retryMs = FIRST_RETRY_MS;
      this.become("open");
    };
    socket.onmessage = (event) => this.take(JSON.parse(event.data as string) as ToPage);
    socket.onclose = () => void this.closed();
  }

  private async closed(): Promise<void> {
    this.settleAll();
    if (this.link === "refused") return;
    this.become(this.link === "connecting" ? "connecting" : "lost");
    if (await this.isRefused()) return;
    setTimeout(() => this.connect(), this.retryMs);
    this.retryMs = Math.min(this.retryMs * 2, LONGEST_RETRY_MS);
  }

  /** A socket does not say why it was closed; a request does. */
  private async isRefused(): Promise<boolean> {
    try {
      await this.get("/api/hello");
      this.retryMs = FIRST_RETRY_MS;
    } catch (error) {
      if (error instanceof RequestFailed && error.status === 401) return true;
      this.become("lost");
    }
    return false;
  }

  private settleAll(): void {
    for (const [id, running] of this.running) running.settle(lost(id));
    this.running.clear();
  }

  private become(link: Link): void {
    if (this.link === link) return;
    this.link = link;
    this.linkChanged.emit(link);
  }

  private take(message: ToPage): void {
    if (message.type === "model") {
      this.modelChanged.emit(message);
      return;
    }
    const running = this.running.get(message.id);
    if (!running) return;
    if (message.type === "progress") running.progress(message);
    else if (message.type === "hunk") running.hunk(message);
    else this.settle(message);
  }

  private settle(outcome: Merged | Abstained | Failed | Cancelled): void {
    this.running.get(outcome.id)?.settle(outcome);
    this.running.delete(outcome.id);
  }

  /** Start one merge. `outcome` always settles; it never rejects. */
  apply(
    asked: Omit<Apply, "type" | "id">,
    on: { progress: (progress: ProgressSent) => void; hunk: (hunk: HunkSent) => void },
  ): { outcome: Promise<Outcome>; cancel: () => void } {
    const id = `apply-${++this.lastId}`;
    const message: Apply = { type: "apply", id, ...asked };
    if (this.socket?.readyState !== WebSocket.OPEN) return { outcome: Promise.resolve(lost(id)), cancel: () => {} };
    const outcome = new Promise<Outcome>((settle) => this.running.set(id, { settle, ...on }));
    this.socket.send(JSON.stringify(message));
    return { outcome, cancel: () => this.cancel(id) };
  }

  private cancel(id: string): void {
    if (this.socket?.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify({ type: "cancel", id }));
  }
}

function lost(id: string): Failed {
  const message = "The connection to etude was lost, so nothing was merged. It is tried again by itself.";
  return { type: "failed", id, error: "ConnectionLost", message };
}
