// Notes every picture that the page's player shows: when, the colour of the square of its test
// pattern, which says of which channel it is, and the bits of the clock beside it. And the pitch
// of what is heard.
(() => {
  const CELLS = 2 + window.sluiceClockBits; // the square, and the clock
  const video = document.querySelector("video");
  const canvas = document.querySelector("canvas"); // of a player that decodes by itself
  const context = new OffscreenCanvas(CELLS, 1).getContext("2d", { willReadFrequently: true });
  context.imageSmoothingEnabled = false; // the middle of each cell, and nothing else
  const pictures = [];
  const sounds = [];
  let pressed = 0;
  addEventListener("keydown", () => (pressed = performance.now()), { capture: true });

  const keep = (list, x) => {
    list.push(x);
    if (list.length > 6000) list.splice(0, 3000);
  };
  const look = (now, source, height, more) => {
    const cell = height / 12;
    context.drawImage(source, 0, cell / 2, CELLS * cell, 1, 0, 0, CELLS, 1);
    const { data } = context.getImageData(0, 0, CELLS, 1);
    let clock = 0;
    for (let i = 2; i < CELLS; i++) clock = 2 * clock + (data[4 * i + 1] > 127 ? 1 : 0);
    // What is being shown is given the time at which its frame began, which may be before it was drawn.
    keep(pictures, { at: now, time: Date.now(), colour: [...data.slice(0, 3)], clock, ...more });
  };
  // More of a picture: its timestamp in units of 1/90000 s, and when it was received and decoded.
  const lookAtVideo = (now, frame) => {
    look(now, video, video.videoHeight, { stamp: frame.rtpTimestamp, received: frame.receiveTime, decoded: frame.presentationTime });
    video.requestVideoFrameCallback(lookAtVideo);
  };
  video.requestVideoFrameCallback(lookAtVideo);
  canvas?.addEventListener("picture", ({ detail: { at, timestamp } }) => {
    look(at, canvas, canvas.height, { stamp: Math.round(timestamp * 0.09) % 2 ** 32, ...window.sluiceDecoder?.get(timestamp) });
  });

  // The pitch of a tone by the distance of the places where it rises through zero.
  const samples = new Float32Array(512); // 11 ms
  const pitch = (rate) => {
    let first = -1;
    let last = -1;
    let periods = -1;
    for (let i = 1; i < samples.length; i++) {
      if (samples[i - 1] < 0 && samples[i] >= 0) {
        last = i - samples[i] / (samples[i] - samples[i - 1]);
        first = first < 0 ? last : first;
        periods++;
      }
    }
    return periods > 0 ? (rate * periods) / (last - first) : 0;
  };
  let ear = null;
  const listen = () => {
    if (!ear && video.srcObject?.getAudioTracks().length > 0) {
      const audio = new AudioContext({ latencyHint: "interactive" });
      ear = audio.createAnalyser();
      ear.fftSize = samples.length;
      audio.createMediaStreamSource(video.srcObject).connect(ear);
    }
    if (ear) {
      ear.getFloatTimeDomainData(samples);
      // When the first of the samples was heard: a pitch is that of all of them.
      const rate = ear.context.sampleRate;
      keep(sounds, { at: performance.now() - (1000 * samples.length) / rate, pitch: pitch(rate) });
    }
  };
  setInterval(listen, 5);

  const is = (picture, colour) => picture.colour.every((c, i) => Math.abs(c - colour[i]) < 24);
  const isAt = (s, hertz) => s && Math.abs(s.pitch / hertz - 1) < 0.025;
  window.sluicePictures = {
    // Of which of the colours the newest picture is, or -1.
    shows: (colours) => (pictures.length ? colours.findIndex((c) => is(pictures.at(-1), c)) : -1),
    // The last pictures, with times in ms since 1970.
    last: (n) =>
      pictures.slice(-n).map(({ clock, time, stamp, received, decoded }) => ({
        clock, time, stamp, received: performance.timeOrigin + received, decoded: performance.timeOrigin + decoded,
      })),
    // What the change showed that the last key began: how long until the first picture of
    // the new channel, the longest time without a picture around it, the pictures that are of
    // neither, how long after the first picture its sound was heard, and the clock in the first
    // picture and in the last, with the time (ms since 1970) at which it was seen. Waits for the
    // new channel, and a second longer.
    change: async (before, after, hertz) => {
      const until = performance.now() + 10_000;
      const wait = () => new Promise((resolve) => setTimeout(resolve, 20));
      const there = () => pictures.find((p) => p.at > pressed && is(p, after));
      while (!there() && performance.now() < until) await wait();
      const first = there();
      if (!first) return { error: `no picture of the channel; the last ones are ${JSON.stringify(pictures.slice(-3))}` };
      while (performance.now() < first.at + 1000) await wait();
      const near = pictures.filter((p) => p.at > pressed - 200 && p.at < first.at + 1000);
      // What was shown before the old channel's first picture does not belong to the change.
      const around = near.slice(Math.max(0, near.findIndex((p) => is(p, before))));
      let frozen = 0;
      for (let i = 1; i < around.length; i++) frozen = Math.max(frozen, around[i].at - around[i - 1].at);
      const wrong = around.filter((p) => !is(p, before) && !is(p, after)).length;
      const back = around.filter((p) => p.at > first.at && !is(p, after)).length;
      const heard = sounds.find((s, i) => s.at > pressed && isAt(s, hertz) && isAt(sounds[i + 1], hertz));
      const last = around.at(-1);
      return {
        zap: first.at - pressed, frozen, wrong: wrong + back, heard: heard ? heard.at - first.at : null,
        first: { clock: first.clock, time: first.time }, last: { clock: last.clock, time: last.time },
      };
    },
  };
})();
