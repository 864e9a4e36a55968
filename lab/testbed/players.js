// Players of other ways to change channel, in the video of this page: the arrow key goes to the
// next channel. They have no more in them than a change needs.
(() => {
  document.body.innerHTML = '<video muted autoplay playsinline width="640" height="360"></video>';
  const video = document.querySelector("video");
  const show = (pc) => (pc.ontrack = (e) => e.track.kind === "video" && (video.srcObject = e.streams[0]));

  // A new session by WHEP (RFC 9725) for each channel.
  const whep = (base) => {
    let pc, session;
    return async (channel) => {
      pc?.close();
      if (session) fetch(session, { method: "DELETE" });
      pc = new RTCPeerConnection();
      show(pc);
      for (const kind of ["video", "audio"]) pc.addTransceiver(kind, { direction: "recvonly" });
      await pc.setLocalDescription();
      const res = await fetch(`${base}/whep/c${channel}`, {
        method: "POST", headers: { "Content-Type": "application/sdp" }, body: pc.localDescription.sdp,
      });
      if (!res.ok) throw new Error(`WHEP: ${res.status} ${await res.text()}`);
      session = new URL(res.headers.get("Location"), res.url);
      await pc.setRemoteDescription({ type: "answer", sdp: await res.text() });
    };
  };

  // Janus, by its API over HTTP: one session, in which a handle watches a mountpoint.
  const janus = (base, swap) => {
    let session, handle, pc, offered;
    const ask = async (path, body) => {
      const res = await fetch(base + path, { method: "POST", body: JSON.stringify({ transaction: crypto.randomUUID?.() ?? String(Math.random()), ...body }) });
      const said = await res.json();
      if (said.janus === "error") throw new Error(`Janus: ${said.error.reason}`);
      return said;
    };
    const message = (body, jsep) => ask(`/${session}/${handle}`, { janus: "message", body, ...(jsep && { jsep }) });
    const listen = async () => {
      for (;;) {
        for (const e of await (await fetch(`${base}/${session}?maxev=10`)).json()) {
          if (e.jsep) offered?.(e.jsep);
        }
      }
    };
    const join = async (channel) => {
      handle = (await ask(`/${session}`, { janus: "attach", plugin: "janus.plugin.streaming" })).data.id;
      const offer = new Promise((resolve) => (offered = resolve));
      await message({ request: "watch", id: channel });
      pc = new RTCPeerConnection();
      show(pc);
      await pc.setRemoteDescription(await offer);
      const gathered = new Promise((resolve) => (pc.onicegatheringstatechange = () => pc.iceGatheringState === "complete" && resolve()));
      await pc.setLocalDescription();
      await gathered;
      await message({ request: "start" }, pc.localDescription.toJSON());
    };
    return async (channel) => {
      if (!session) {
        session = (await ask("", { janus: "create" })).data.id;
        listen();
        return join(channel);
      }
      if (swap) return message({ request: "switch", id: channel });
      pc.close();
      ask(`/${session}/${handle}`, { janus: "detach" });
      return join(channel);
    };
  };

  window.sluicePlayer = (kind, base, channels) => {
    const watch = { "whep": whep, "janus-join": janus, "janus-switch": (b) => janus(b, true) }[kind](base);
    let now = 0;
    addEventListener("keydown", async () => {
      now = (now + 1) % channels;
      watch(now + 1).catch((e) => console.error(e));
    });
    return watch(1);
  };
})();
