// What travels between page and server; the same names as etude/server/wire.py.

export interface ModelState {
  type: "model";
  name: string;
  phase: "loading" | "ready" | "failed";
  message: string;
}

export interface Hello {
  root: string;
  readOnly: boolean;
  version: string;
  model: ModelState;
}

export interface Listing {
  files: string[];
  tooMany: boolean;
  git: boolean;
}

export interface FolderListing {
  path: string;
  entries: { name: string; isFolder: boolean }[];
  truncated: boolean;
}

export interface OpenedFile {
  path: string;
  text: string;
  sha256: string;
  canUndo: boolean;
}

export interface Undone {
  file: OpenedFile | null;
}

export interface SplitFile {
  path: string;
  text: string;
  exists: boolean;
}

export interface SplitReply {
  files: SplitFile[];
}

export interface Apply {
  type: "apply";
  id: string;
  path: string;
  text: string;
  sketch: string;
  instruction: string;
}

export interface Cancel {
  type: "cancel";
  id: string;
}

export interface WireEdit {
  start: number;
  end: number;
  text: string;
}

export interface ProgressSent {
  type: "progress";
  id: string;
  stage: string;
  done: number;
  total: number;
}

export interface HunkSent {
  type: "hunk";
  id: string;
  edit: WireEdit;
}

export interface Ran {
  engine: string;
  model: string;
  seconds: number;
  tokens: number;
  firstHunkSeconds: number | null;
}

export interface Merged {
  type: "merged";
  id: string;
  edits: WireEdit[];
  ran: Ran;
}

export interface Abstained {
  type: "abstained";
  id: string;
  reason: string;
  message: string;
  sketchLine: number | null;
  candidates: number[];
  ran: Ran;
}

export interface Failed {
  type: "failed";
  id: string;
  error: string;
  message: string;
}

export interface Cancelled {
  type: "cancelled";
  id: string;
}

export type Outcome = Merged | Abstained | Failed | Cancelled;
export type ToPage = ModelState | ProgressSent | HunkSent | Outcome;
