package cinema

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"sync"
	"time"

	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"

	"github.com/sluice-net/sluice/lab/testbed"
)

// early runs before the page's own scripts, and records the page's connections.
const early = `window.connections = [];
window.RTCPeerConnection = class extends RTCPeerConnection {
  constructor(...args) { super(...args); window.connections.push(this); }
};`

// look records the pictures that the page's video shows: how many, how many different ones,
// when the last was shown, and the longest time without one, in milliseconds of the machine's
// clock.
const look = `(() => {
  const video = document.querySelector("video");
  const context = new OffscreenCanvas(32, 18).getContext("2d", { willReadFrequently: true });
  const different = new Set();
  window.looked = { count: 0, different: 0, at: 0, still: 0 };
  const note = () => {
    context.drawImage(video, 0, 0, 32, 18);
    if (different.size < 1000) different.add(context.getImageData(0, 0, 32, 18).data.join());
    const { count, at, still } = window.looked;
    const now = performance.timeOrigin + performance.now();
    window.looked = { count: count + 1, different: different.size, at: now, still: Math.max(still, at ? now - at : 0) };
    video.requestVideoFrameCallback(note);
  };
  video.requestVideoFrameCallback(note);
})()`

// page is a browser with one page, and what that has done.
type page struct {
	*testbed.Browser
	w *world

	mu       sync.Mutex
	faults   []string // from its console
	requests []string
}

// browse opens a page in a browser on a host.
func (w *world) browse(host, address string, flags ...string) *page {
	w.t.Helper()
	b, err := testbed.StartBrowser(w.t.Context(), w.lab.Host(host), filepath.Join(w.log, "chromium-"+host+".log"), flags...)
	w.must(err)
	w.t.Cleanup(b.Close)
	p := &page{Browser: b, w: w}
	w.must(b.Listen(p.note))
	w.must(b.Before(w.t.Context(), early))
	w.must(b.Open(w.t.Context(), address))
	w.must(b.Do(w.t.Context(), look))
	w.t.Cleanup(p.tell)
	return p
}

// tell logs the page of a failed test.
func (p *page) tell() {
	if !p.w.t.Failed() {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.w.t.Context()), 5*time.Second)
	defer cancel()
	text, err := testbed.InPage[string](ctx, p.Browser, "document.body.innerText + JSON.stringify(window.looked)")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.w.t.Logf("the page is %q, %v; its console says %q", text, err, p.faults)
}

func (p *page) note(event any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		p.requests = append(p.requests, e.Request.URL)
	case *runtime.EventExceptionThrown:
		p.faults = append(p.faults, e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.ConsoleAPICalledTypeError || e.Type == runtime.ConsoleAPICalledTypeWarning {
			p.faults = append(p.faults, fmt.Sprintf("%s: %+v", e.Type, e.Args))
		}
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError || e.Entry.Level == log.EntryLevelWarning {
			p.faults = append(p.faults, e.Entry.Text+" "+e.Entry.URL)
		}
	}
}

// clean checks that the page had no faults, and has sent requests only to gateways.
func (p *page) clean(gateways ...string) {
	p.w.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		p.w.t.Errorf("the console says %s", f)
	}
	ours := map[string]bool{}
	for _, g := range gateways {
		u, err := url.Parse(p.w.PublicURL(g))
		p.w.must(err)
		ours[u.Host] = true
	}
	for _, r := range p.requests {
		if u, err := url.Parse(r); err != nil || !ours[u.Host] {
			p.w.t.Errorf("the page asks for %s", r)
		}
	}
}

// looked is what a page has shown.
type looked struct {
	Count, Different int
	At, Still        float64
}

func (p *page) looked() looked {
	p.w.t.Helper()
	l, err := testbed.InPage[looked](p.w.t.Context(), p.Browser, "window.looked")
	p.w.must(err)
	return l
}

// shown returns when the last picture was shown, and still the longest time without one.
func (l looked) shown() time.Time     { return time.UnixMicro(int64(l.At * 1000)) }
func (l looked) still() time.Duration { return time.Duration(l.Still * float64(time.Millisecond)) }

// freshAfter waits until a picture has been shown after a moment.
func (p *page) freshAfter(at time.Time) {
	p.w.t.Helper()
	p.w.must(testbed.Poll(p.w.t.Context(), "a picture", func() error {
		if last := p.looked().shown(); last.Before(at) {
			return fmt.Errorf("the last was shown %v before; the page says %q", at.Sub(last), p.says("status"))
		}
		return nil
	}))
}

// moves waits until the page has shown that many more pictures, which are not all the same.
func (p *page) moves(more int) {
	p.w.t.Helper()
	before := p.looked()
	p.w.must(testbed.Poll(p.w.t.Context(), "moving pictures", func() error {
		now, err := testbed.InPage[looked](p.w.t.Context(), p.Browser, "window.looked")
		if err == nil && (now.Count < before.Count+more || now.Different < before.Different+2) {
			err = fmt.Errorf("there were %+v and are %+v; the page says %q", before, now, p.says("status"))
		}
		return err
	}))
}

// says returns the text of an element of the page.
func (p *page) says(id string) string {
	p.w.t.Helper()
	text, err := testbed.InPage[string](p.w.t.Context(), p.Browser, fmt.Sprintf("document.getElementById(%q).textContent", id))
	p.w.must(err)
	return text
}

// is waits until an expression is true in the page.
func (p *page) is(what, expression string) {
	p.w.t.Helper()
	p.w.must(testbed.Poll(p.w.t.Context(), what, func() error {
		yes, err := testbed.InPage[bool](p.w.t.Context(), p.Browser, expression)
		if err == nil && !yes {
			err = errors.New("it is not so: " + p.says("status"))
		}
		return err
	}))
}

// heard is what a page's connection has received.
type heard struct {
	Sound, Energy, Decoded float64
}

func (p *page) heard() heard {
	p.w.t.Helper()
	h, err := testbed.InPage[heard](p.w.t.Context(), p.Browser, `(async () => {
  const heard = { Sound: 0, Energy: 0, Decoded: 0 };
  for (const s of (await window.connections.at(-1).getStats()).values()) {
    if (s.type !== "inbound-rtp") continue;
    if (s.kind === "audio") [heard.Sound, heard.Energy] = [s.packetsReceived, s.totalAudioEnergy];
    else heard.Decoded = s.framesDecoded;
  }
  return heard;
})()`)
	p.w.must(err)
	return h
}
