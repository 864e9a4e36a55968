// A parser for server-sent events: text comes in any pieces, whole messages go out.

export interface Message {
  id?: string;
  event: string;
  data: string;
}

/** Letters of one message: far more than any event has. */
const most = 1 << 20;

export class Parser {
  private rest = "";
  /** Since the last message began. */
  private letters = 0;
  private message: Message = { event: "message", data: "" };
  private lines: string[] = [];

  /** Takes the next piece of the stream and returns the messages it completes. */
  push(piece: string): Message[] {
    const done: Message[] = [];
    const lines = (this.rest + piece).split("\n");
    this.rest = lines.pop()!;
    this.letters += piece.length;
    if (this.letters > most && !lines.includes("") && !lines.includes("\r")) throw new Error("a message of the event stream does not end");
    for (const line of lines) {
      const message = this.line(line.replace(/\r$/, ""));
      if (message) done.push(message);
    }
    return done;
  }

  private line(line: string): Message | undefined {
    if (line === "") return this.complete();
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.lines.push(value);
    else if (field === "event") this.message.event = value;
    else if (field === "id") this.message.id = value;
    return undefined; // the rest are comments, and fields that we do not use
  }

  private complete(): Message | undefined {
    const message = { ...this.message, data: this.lines.join("\n") };
    const empty = this.lines.length === 0;
    this.message = { event: "message", data: "" };
    this.lines = [];
    this.letters = 0;
    return empty ? undefined : message;
  }
}
