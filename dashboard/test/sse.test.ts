import { expect, test } from "vitest";

import { Parser, type Message } from "../src/api/sse";

const stream = ": following\n\nid: 7\nevent: network.link.up\ndata: {\"id\":7}\n\nevent: missed\r\ndata: one\r\ndata: two\r\n\r\nid\ndata:tight\n\n";
const want: Message[] = [
  { id: "7", event: "network.link.up", data: '{"id":7}' },
  { event: "missed", data: "one\ntwo" },
  { id: "", event: "message", data: "tight" },
];

test("messages come out whole, wherever the stream is cut", () => {
  for (let cut = 0; cut <= stream.length; cut++) {
    const parser = new Parser();
    expect([...parser.push(stream.slice(0, cut)), ...parser.push(stream.slice(cut))]).toEqual(want);
  }
});

test("an unfinished message is kept back", () => {
  expect(new Parser().push("id: 1\ndata: x\n")).toEqual([]);
});
