// The player: one session, and another one when its gateway is gone.

import { Frames } from "./frames.js";
import { LightSession, whyNot } from "./light.js";
import { Full, gatewayAt, Refused } from "./session.js";
import { WhepSession } from "./whep.js";

// A session of which nothing comes for so long may be over, in milliseconds.
const quiet = 1000;
const look = 250;
const again = 1000;
// WebRTC that does not connect within so long is given up for a WebSocket, if that can be.
const connectTime = 3000;
// ownGateway is the gateway that the page came from.
const ownGateway = gatewayAt(new URL(".", import.meta.url));
// So many other gateways are asked when one is full: what is known of their room may be old.
const mostAsked = 4;

export class Player {
  // tell is called with what happens: {channel, text, zap, seen, wants, how}. light: by WebSocket
  // from the beginning, if that can be.
  constructor(video, canvas, light, tell) {
    this.video = video;
    this.canvas = canvas;
    this.light = light;
    this.tell = tell;
    this.frames = new Frames().of(video);
    this.session = null;
    this.channel = null; // that is seen
    this.wanted = null; // that was asked for last
    this.passwords = new Map();
    this.gateways = [];
    this.turn = 0; // counts what was asked for: the last counts
    this.changing = 0; // how many changes are under way
    this.packets = 0;
    this.heard = 0;
    setInterval(() => this.watchdog(), look);
  }

  // base is the gateway that is asked.
  get base() {
    return this.session?.base ?? ownGateway;
  }

  // watch shows a channel. A password that is given is kept for as long as the page is there.
  async watch(channel, password) {
    const turn = ++this.turn;
    this.wanted = channel;
    if (password !== undefined) {
      this.passwords.set(channel, password);
    }
    const secret = this.passwords.get(channel);
    try {
      if (this.session) {
        await this.change(channel, secret);
      } else {
        this.tell({ text: "Connecting …" });
        this.begin(await this.join(this.base, channel, secret), turn);
      }
    } catch (err) {
      this.failed(err, channel, turn);
    }
  }

  // join begins a session at a gateway, or if that is full at another one.
  async join(base, channel, secret) {
    try {
      return await this.joinAt(base, channel, secret);
    } catch (full) {
      if (!(full instanceof Full)) {
        throw full;
      }
      for (const other of instead(full, this.gateways, base)) {
        try {
          return await this.joinAt(other, channel, secret);
        } catch (err) {
          if (err instanceof Refused && !(err instanceof Full)) {
            throw err;
          }
        }
      }
      throw full;
    }
  }

  // joinAt begins a session of the kind that is wanted and can be.
  async joinAt(base, channel, secret) {
    const why = this.light ? await whyNot() : "";
    if (why) {
      this.light = false;
      this.tell({ how: `${why} You watch by WebRTC.` });
    }
    return this.light ? LightSession.join(base, channel, secret, this.canvas) : WhepSession.join(base, channel, secret);
  }

  // connected goes on by WebSocket if a session by WebRTC does not connect.
  async connected(session) {
    if (session.light || (await session.connects(connectTime)) || session !== this.session || (await whyNot())) {
      return;
    }
    const turn = ++this.turn;
    this.light = true;
    this.tell({ how: "WebRTC does not connect from here. You watch by WebSocket." });
    const channel = this.channel;
    try {
      this.begin(await this.join(session.base, channel, this.passwords.get(channel)), turn);
    } catch (err) {
      this.failed(err, channel, turn);
    }
  }

  async change(channel, secret) {
    const turn = this.turn;
    const session = this.session;
    const asked = performance.now();
    this.changing++;
    const { zap, timestamp } = await session.change(channel, secret).finally(() => this.changing--);
    if (turn !== this.turn || session !== this.session) {
      return;
    }
    this.channel = channel;
    this.tell({ channel, text: "", zap });
    if (timestamp !== undefined) {
      const shown = await (session.frames ?? this.frames).since(timestamp, 5000);
      if (shown !== null && turn === this.turn) {
        this.tell({ channel, zap, seen: Math.max(0, shown - asked) });
      }
    }
  }

  // begin shows a session's pictures.
  begin(session, turn) {
    if (turn !== this.turn) {
      session.close();
      return;
    }
    this.session?.close();
    this.session = session;
    this.channel = this.wanted = session.channel;
    this.packets = 0;
    this.heard = performance.now() + quiet; // it connects first
    this.video.srcObject = session.stream;
    this.canvas.hidden = !session.light;
    this.connected(session);
    this.tell({ channel: this.channel, text: "" });
    this.play();
  }

  // play begins with sound if the browser lets it.
  async play() {
    try {
      await this.video.play();
    } catch (err) {
      if (err.name === "NotAllowedError" && !this.video.muted) {
        this.video.muted = true;
        this.play();
      }
    }
  }

  failed(err, channel, turn) {
    if (turn !== this.turn) {
      return;
    }
    this.wanted = this.channel;
    if (err instanceof Refused && err.status === 401) {
      const wrong = this.passwords.has(channel);
      this.passwords.delete(channel);
      this.tell({ wants: channel, wrong });
    } else if (err instanceof Refused && err.status === 404 && !err.noChannel && this.session) {
      this.recover();
    } else if (err instanceof Refused) {
      this.tell({ text: err.message });
    } else if (this.session) {
      this.tell({ text: "The gateway does not answer." });
    } else {
      this.channel = channel;
      this.recover();
    }
  }

  // stop ends what is watched; text says why, if not because the viewer wants it.
  stop(text = "") {
    this.turn++;
    this.session?.close();
    this.session = null;
    this.channel = null;
    this.wanted = null;
    this.video.srcObject = null;
    this.canvas.hidden = true;
    this.tell({ channel: null, text });
  }

  // watchdog looks whether anything comes, and asks the gateway if not.
  async watchdog() {
    const session = this.session;
    if (!session || this.looking || this.changing > 0) {
      return;
    }
    this.looking = true;
    try {
      const packets = await session.received();
      const now = performance.now();
      if (packets !== this.packets) {
        this.packets = packets;
        this.heard = Math.max(now, this.heard);
      } else if (now - this.heard > quiet && session === this.session) {
        const turn = this.turn;
        if (await session.lives()) {
          this.heard = performance.now();
        } else if (turn === this.turn) {
          await this.recover();
        }
      }
    } finally {
      this.looking = false;
    }
  }

  // recover goes on at another gateway, or at its own if that is back.
  async recover() {
    const turn = ++this.turn;
    const channel = this.channel ?? this.session?.channel;
    const own = this.base;
    this.session?.drop();
    this.tell({ text: "The gateway is gone. Looking for another one …" });
    for (let round = 0; turn === this.turn; round++) {
      for (const base of [...others(this.gateways, own), own]) {
        try {
          this.begin(await this.joinAt(base, channel, this.passwords.get(channel)), turn);
          return;
        } catch (err) {
          if (turn !== this.turn) {
            return;
          }
          if (err instanceof Refused && err.status === 401) {
            this.failed(err, channel, turn);
            return;
          }
          if (err instanceof Refused && err.noChannel) {
            this.stop("The channel is there no longer. Choose another one.");
            return;
          }
        }
      }
      await new Promise((resolve) => setTimeout(resolve, again));
    }
  }
}

// others are the gateways with room, the one with the most first.
function others(gateways, own) {
  return gateways
    .filter((g) => g.room > 0 && g.url && gatewayAt(g.url) !== own)
    .sort((a, b) => b.room - a.room)
    .map((g) => gatewayAt(g.url));
}

// instead are the gateways to ask when one is full, each once: that which it names, and others.
function instead(full, gateways, base) {
  const named = full.location ? [gatewayAt(full.location)] : [];
  return [...new Set([...named, ...others(gateways, base)])].filter((o) => o !== base).slice(0, mostAsked);
}
