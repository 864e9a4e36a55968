// A parser for server-sent events: text comes in any pieces, whole messages go out.

export interface Message {
  id?: string;
  event: string;
  data: string;
}

export class Parser {
  private rest = "";
  private message: Message = { event: "message", data: "" };
  private lines: string[] = [];

  /** Takes the next piece of the stream and returns the messages it completes. */
  push(piece: string): Message[] {
    const done: Message[] = [];
    const lines = (this.rest + piece).split("\n");
    this.rest = lines.pop()!;
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
    return empty ? undefined : message;
  }
}
