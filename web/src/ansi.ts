// What a terminal would make of a command's output, as far as one reads it: colours, and lines that are written over.

/** A stretch of text in one look: "", or class names such as "ansi-31 ansi-bold". */
export interface Piece {
  text: string;
  look: string;
}

// Colours and the like end in "m" and are kept; every other sequence moves a cursor that is not there.
const SEQUENCE = /\u001b(?:\[([0-9;:]*)[ -/]*([@-~])|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[ -/]*[0-~])/g;
// A sequence whose end has not come yet.
const HALF = /\u001b(?:\[[0-9;:]*[ -/]*|\][^\u0007\u001b]{0,200})?$/;
const OTHER_CONTROLS = /[\u0000-\u0008\u000b\u000c\u000e-\u001a\u001c-\u001f\u007f\u0080-\u009f]/g;

/** Reads output piece by piece; the look goes on from one piece to the next. */
export class AnsiReader {
  private look = new Set<string>();
  private half = "";

  read(text: string): Piece[] {
    const whole = this.half + text;
    this.half = HALF.exec(whole)?.[0] ?? "";
    const ready = whole.slice(0, whole.length - this.half.length);
    const pieces: Piece[] = [];
    let at = 0;
    for (const match of ready.matchAll(SEQUENCE)) {
      this.add(pieces, ready.slice(at, match.index));
      if (match[2] === "m") this.turn(match[1] ?? "");
      at = match.index + match[0].length;
    }
    this.add(pieces, ready.slice(at));
    return pieces;
  }

  private add(pieces: Piece[], raw: string): void {
    const text = raw.replace(OTHER_CONTROLS, "").replaceAll("\u001b", "");
    if (text) pieces.push({ text, look: [...this.look].join(" ") });
  }

  private turn(codes: string): void {
    const numbers = (codes || "0").split(/[;:]/).map(Number);
    for (let at = 0; at < numbers.length; at++) {
      const code = numbers[at]!;
      // 38 and 48 take a colour of 256 or of 16 million: more than this page distinguishes.
      if (code === 38 || code === 48) at += numbers[at + 1] === 5 ? 2 : 4;
      else this.apply(code);
    }
  }

  private apply(code: number): void {
    if (code === 0) this.look.clear();
    else if (code === 1) this.look.add("ansi-bold");
    else if (code === 2) this.look.add("ansi-dim");
    else if (code === 3) this.look.add("ansi-italic");
    else if (code === 4) this.look.add("ansi-underline");
    else if (code === 22) this.without(/bold|dim/);
    else if (code === 23) this.without(/italic/);
    else if (code === 24) this.without(/underline/);
    else if (code === 39) this.without(/ansi-\d/);
    else if ((code >= 30 && code <= 37) || (code >= 90 && code <= 97)) {
      this.without(/ansi-\d/);
      this.look.add(`ansi-${code >= 90 ? code - 60 : code}`);
    }
  }

  private without(names: RegExp): void {
    for (const name of [...this.look]) if (names.test(name)) this.look.delete(name);
  }
}

/** Text without any sequence. */
export function plain(text: string): string {
  return new AnsiReader().read(text).map((piece) => piece.text).join("");
}
