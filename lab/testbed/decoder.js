// Notes for each picture that a page decodes by itself when it was received, and when it was decoded, by
// its timestamp.
(() => {
  const times = new Map();
  window.sluiceDecoder = times;
  const Original = window.VideoDecoder;
  if (!Original) return;
  window.VideoDecoder = class extends Original {
    constructor(init) {
      super({
        ...init,
        output: (frame) => {
          const x = times.get(frame.timestamp);
          if (x) x.decoded = performance.now();
          init.output(frame);
        },
      });
    }

    decode(chunk) {
      if (times.size > 3000) times.clear();
      times.set(chunk.timestamp, { received: performance.now() });
      super.decode(chunk);
    }
  };
})();
