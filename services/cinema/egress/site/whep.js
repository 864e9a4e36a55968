// One session of WHEP with a gateway.

import { Full, joinTime, Refused, Session } from "./session.js";

// How long a gateway may take to hear of the end, in milliseconds.
const byeTime = 1000;

// bye tells a gateway that a session is over, if there is one, and then closes what is here of
// it: the gateway forgets who closes the connection.
export function bye(url, close) {
  if (url) {
    fetch(url, { method: "DELETE", keepalive: true, signal: AbortSignal.timeout(byeTime) }).catch(() => {}).finally(close);
  } else {
    close();
  }
}

export function authorization(password) {
  return password ? { Authorization: `Bearer ${password}` } : {};
}

// apart has picture and sound be of two streams, so that the picture does not wait for the sound,
// of which browsers keep some 50 ms more: another channel is seen that much sooner.
function apart(answer) {
  return answer.replace(/msid:(\S+) audio/g, "msid:$1-sound audio");
}

export async function refusal(res) {
  const problem = await res.json().catch(() => ({})); // the status says enough
  return new Refused(res.status, problem);
}

// WhepSession goes by WebRTC.
export class WhepSession extends Session {
  async open(base, channel, password) {
    this.stream = new MediaStream();
    this.pc = new RTCPeerConnection();
    this.pc.addEventListener("track", (e) => {
      this.stream.addTrack(e.track);
      e.receiver.jitterBufferTarget = 0; // live: what is here is shown
    });
    for (const kind of ["video", "audio"]) {
      this.pc.addTransceiver(kind, { direction: "recvonly" });
    }
    await this.pc.setLocalDescription();
    const res = await fetch(`${base}/whep/${encodeURIComponent(channel)}`, {
      method: "POST",
      headers: { "Content-Type": "application/sdp", ...authorization(password) },
      body: this.pc.localDescription.sdp,
      redirect: "manual", // to a gateway with room: browsers would leave the password behind
      signal: AbortSignal.timeout(joinTime),
    });
    if (res.type === "opaqueredirect") {
      throw new Full();
    }
    if (!res.ok) {
      throw await refusal(res);
    }
    this.base = base;
    this.url = new URL(res.headers.get("Location"), res.url).href;
    this.channel = channel;
    await this.pc.setRemoteDescription({ type: "answer", sdp: apart(await res.text()) });
  }

  async ask(channel, password, time) {
    const res = await fetch(`${this.url}/channel`, {
      method: "PUT",
      headers: { "Content-Type": "application/json", ...authorization(password) },
      body: JSON.stringify({ channel }),
      signal: AbortSignal.timeout(time),
    });
    if (!res.ok) {
      throw await refusal(res);
    }
    return res.json();
  }

  // received counts the packets that have come.
  async received() {
    let packets = 0;
    for (const s of (await this.pc.getStats()).values()) {
      if (s.type === "inbound-rtp") {
        packets += s.packetsReceived;
      }
    }
    return packets;
  }

  // connects says whether media comes, or will within a time.
  connects(time) {
    return new Promise((resolve) => {
      const look = () => {
        if (["connected", "closed"].includes(this.pc.connectionState)) {
          resolve(true); // one that is closed is not waited for
        } else if (this.pc.connectionState === "failed") {
          resolve(false);
        }
      };
      this.pc.addEventListener("connectionstatechange", look);
      setTimeout(() => resolve(false), time);
      look();
    });
  }

  // drop ends what is here of it.
  drop() {
    this.pc?.close();
  }

  // close ends it.
  close() {
    bye(this.url, () => this.drop());
  }
}
