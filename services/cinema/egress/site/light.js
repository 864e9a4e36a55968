// One session by WebSocket: whole pictures and sound come, and are decoded here.

import { Frames } from "./frames.js";
import { Painter } from "./painter.js";
import { Full, joinTime, Refused, Session } from "./session.js";
import { Sound } from "./sound.js";

const protocol = "sluice.cinema.1";
const againTime = 500; // in milliseconds

const head = 9; // bytes before a picture or sound
const flags = { sound: 1, key: 2, cut: 4 };
// The level, 5.0, permits the picture of any channel.
const video = { codec: "avc1.42e032", optimizeForLatency: true };
const audio = { codec: "opus", sampleRate: 48000, numberOfChannels: 2 };

// why says why there can be no such session in this browser; empty if there can be.
export async function whyNot() {
  if (!("VideoDecoder" in window) || !("AudioDecoder" in window)) {
    return isSecureContext ? "This browser has no WebCodecs." : "Browsers give WebCodecs to pages that came by https only.";
  }
  const { supported } = await VideoDecoder.isConfigSupported(video);
  return supported ? "" : "This browser does not decode H.264 for pages.";
}

// bearer is a password as a WebSocket can be asked for with: not in its address.
function bearer(password) {
  const bytes = String.fromCharCode(...new TextEncoder().encode(password));
  return `bearer.${btoa(bytes).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "")}`;
}

// LightSession goes by a WebSocket, and is painted on a canvas.
export class LightSession extends Session {
  constructor(canvas) {
    super();
    this.light = true;
    this.frames = new Frames();
    this.painter = new Painter(canvas, this.frames);
    this.sound = new Sound();
    this.stream = this.sound.stream;
    this.packets = 0;
    this.requests = new Map();
    this.last = 0; // request
    this.needsKey = true;
    this.audio = new AudioDecoder({ output: (data) => this.sound.play(data), error: () => {} });
    this.audio.configure(audio);
    this.decode();
  }

  // decode begins to decode, at a key frame.
  decode() {
    this.needsKey = true;
    this.video = new VideoDecoder({ output: (frame) => this.painter.take(frame), error: () => this.broken() });
    this.video.configure(video);
  }

  // broken begins anew after what cannot be decoded.
  broken() {
    setTimeout(() => {
      if (this.socket?.readyState === WebSocket.OPEN) {
        this.decode();
        this.socket.send(JSON.stringify({ request: ++this.last, again: true }));
      }
    }, againTime);
  }

  open(base, channel, password) {
    this.base = base;
    this.channel = channel;
    const at = `${base.replace(/^http/, "ws")}/ws/${encodeURIComponent(channel)}`;
    this.socket = new WebSocket(at, password ? [protocol, bearer(password)] : [protocol]);
    this.socket.binaryType = "arraybuffer";
    return new Promise((resolve, reject) => {
      const late = setTimeout(() => reject(new Error("The gateway does not answer.")), joinTime);
      this.joined = (err) => {
        clearTimeout(late);
        err ? reject(err) : resolve();
      };
      this.socket.addEventListener("close", () => this.ended());
      this.socket.addEventListener("message", (e) => (typeof e.data === "string" ? this.answered(JSON.parse(e.data)) : this.came(e.data)));
    });
  }

  answered(told) {
    const refusal = told.refused && new Refused(told.refused.status, told.refused);
    if (told.session || (refusal && !told.request)) {
      this.joined(told.location ? new Full(told.location) : refusal);
      return;
    }
    const request = this.requests.get(told.request);
    this.requests.delete(told.request);
    refusal ? request?.reject(refusal) : request?.resolve(told);
  }

  ended() {
    const gone = new Error("The gateway has closed the connection.");
    this.joined(gone);
    for (const { reject } of this.requests.values()) {
      reject(gone);
    }
    this.requests.clear();
  }

  // came decodes a picture or sound.
  came(data) {
    this.packets++;
    const view = new DataView(data);
    const kind = view.getUint8(0);
    const chunk = { type: kind & (flags.key | flags.sound) ? "key" : "delta", timestamp: Number(view.getBigInt64(1)), data: new Uint8Array(data, head) };
    if (kind & flags.sound) {
      if (this.audio.state === "configured") {
        this.audio.decode(new EncodedAudioChunk(chunk));
      }
      return;
    }
    if (kind & flags.cut) {
      this.sound.cut();
    }
    this.needsKey &&= chunk.type !== "key";
    if (!this.needsKey && this.video.state === "configured") {
      this.video.decode(new EncodedVideoChunk(chunk));
    }
  }

  ask(channel, password, time) {
    return new Promise((resolve, reject) => {
      if (this.socket.readyState !== WebSocket.OPEN) {
        reject(new Error("The connection is closed."));
        return;
      }
      const request = ++this.last;
      this.requests.set(request, { resolve, reject });
      this.socket.send(JSON.stringify({ request, channel, ...(password ? { password } : {}) }));
      setTimeout(() => {
        this.requests.delete(request);
        reject(new Error("The gateway does not answer."));
      }, time);
    });
  }

  // received counts what has come.
  async received() {
    return this.packets;
  }

  // close ends it. The gateway notices.
  close() {
    this.drop();
  }

  drop() {
    this.socket?.close();
    for (const decoder of [this.video, this.audio]) {
      if (decoder.state !== "closed") {
        decoder.close();
      }
    }
    this.painter.end();
    this.sound.end();
  }
}
