package cinema

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chromedp/chromedp/kb"

	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/services/cinema"
)

const viewPassword = "for members"

// TestSiteByKeyboard watches without a pointer. All of the page can be reached by keyboard and
// is within the rules of WCAG as axe-core checks them, its console has no complaints, and it
// sends requests only to its gateway.
func TestSiteByKeyboard(t *testing.T) {
	begin(t, "ffmpeg", "chromium")
	axe := axeSource(t)
	top, roles := testbed.CinemaNetwork("cinema-site", link)
	w := newWorld(t, top, roles)
	w.must(w.AddChannel(t.Context(), cinema.ChannelSpec{Name: "c4", Number: 4, Source: pictureSource, BitRate: bitRate, ViewPassword: viewPassword}))
	w.channels(3)
	p := w.browse(testbed.Viewer, w.PublicURL("out2")+"/")
	p.is("the channels to be listed", `document.querySelectorAll("#channels button").length === 4`)
	w.must(p.WatchPictures(t.Context()))
	p.barriers(axe, "before a channel is chosen")

	p.tabTo("To the channels")
	p.press(kb.Enter)
	p.tabTo("1c1")
	p.press(kb.Enter)
	w.must(p.Shows(t.Context(), 1))
	p.is("pictures of the channels without a password", `[...document.querySelectorAll("#channels img")].filter((i) => !i.hidden && i.naturalWidth === 320).length === 3`)
	p.barriers(axe, "while a channel is watched")
	p.press(kb.ArrowUp)
	w.must(p.Shows(t.Context(), 2))
	p.press(kb.ArrowDown)
	w.must(p.Shows(t.Context(), 1))
	p.press("3")
	w.must(p.Shows(t.Context(), 3))
	p.tabTo("3 c3") // the screen: a button with the focus would also take Enter
	p.press("2", kb.Enter)
	w.must(p.Shows(t.Context(), 2))

	p.press("4", kb.Enter)
	p.is("the password to be asked for", `document.getElementById("ask").open && document.activeElement.id === "password"`)
	p.barriers(axe, "while a password is asked for")
	p.press("wrong", kb.Enter)
	p.is("it to be asked for again", `document.getElementById("ask").open && document.getElementById("wrong").textContent !== ""`)
	p.press(viewPassword, kb.Enter)
	w.must(p.Shows(t.Context(), 4))

	p.tabTo("Sound")
	p.press(kb.Enter)
	p.is("the sound to be off", `document.getElementById("video").muted`)
	p.tabTo("Stop")
	p.press(kb.Enter)
	p.is("nothing to be watched", `document.getElementById("name").textContent === "No channel is chosen"`)
	p.forgive("401") // of the wrong password, which the browser logs itself
	p.clean("out2")
}

// TestLiveByKeyboard goes live without a pointer.
func TestLiveByKeyboard(t *testing.T) {
	begin(t, "chromium")
	axe := axeSource(t)
	top, roles := testbed.CinemaNetwork("cinema-live", link)
	w := newWorld(t, top, roles)
	w.must(w.AddChannel(t.Context(), cinema.ChannelSpec{Name: "live1", Number: 1, BitRate: bitRate, PublishPassword: publishPassword}))
	p := w.browse("out1", w.PublicURL("out1")+"/live", camera(w.PublicURL("out1"))...)
	p.is("the channel to be offered", `document.getElementById("channel").value === "live1"`)
	p.barriers(axe, "before it is live")
	p.tabTo("Channel")
	p.tabTo("Password for publishing")
	p.press(publishPassword)
	p.tabTo("Camera and microphone")
	p.tabTo("Go live")
	p.press(kb.Enter)
	p.is("to be on the air", `/^You are on air/.test(document.getElementById("status").textContent)`)
	p.barriers(axe, "while it is live")
	p.tabTo("Stop")
	p.press(kb.Enter)
	p.is("to be off air", `/^You are off air/.test(document.getElementById("status").textContent)`)
	p.clean("out1", "in1", "in2")
}

// axeSource returns the script of axe-core that the dashboard is tested with.
func axeSource(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "dashboard", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		t.Skip("NOT TESTED: the site with axe, because dashboard/node_modules is missing; make test-live installs it")
	}
	return string(b)
}

// barriers fails the test if the page has accessibility faults: missing names, weak contrast
// and the like.
func (p *page) barriers(axe, when string) {
	p.w.t.Helper()
	p.w.must(p.Do(p.w.t.Context(), axe))
	all, err := testbed.InPage[[]string](p.w.t.Context(), p.Browser,
		`axe.run().then((r) => r.passes.length ? r.violations.map((v) => v.id + ": " + v.help + ": " + v.nodes.map((n) => n.html).join(" ")) : ["axe has looked at nothing"])`)
	p.w.must(err)
	for _, b := range all {
		p.w.t.Errorf("%s: %s", when, b)
	}
}

// press presses keys one after the other.
func (p *page) press(keys ...string) {
	p.w.t.Helper()
	for _, k := range keys {
		p.w.must(p.Press(p.w.t.Context(), k))
	}
}

// tabTo presses Tab until the element with an accessible name has the focus.
func (p *page) tabTo(name string) {
	p.w.t.Helper()
	var passed []string
	for range 40 {
		p.press(kb.Tab)
		now, err := testbed.InPage[string](p.w.t.Context(), p.Browser, `(() => {
  const e = document.activeElement;
  const other = document.getElementById(e.getAttribute("aria-labelledby"));
  return (e.getAttribute("aria-label") ?? other?.textContent ?? e.labels?.[0]?.textContent ?? e.textContent).trim();
})()`)
		p.w.must(err)
		if strings.HasPrefix(now, name) {
			return
		}
		passed = append(passed, now)
	}
	p.w.t.Fatalf("%q is not reached by Tab; passed %q", name, passed)
}

// forgive removes expected faults that contain a text.
func (p *page) forgive(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var others []string
	for _, f := range p.faults {
		if !strings.Contains(f, text) {
			others = append(others, f)
		}
	}
	p.faults = others
}
