package ingress

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/sluice-net/sluice/internal/live"
)

// publishingPage publishes a camera with the given encodings and a microphone at a URL, and shows errors.
const publishingPage = `<!doctype html><script>
(async () => {
  const s = await navigator.mediaDevices.getUserMedia({video: {width: 640, height: 360, frameRate: 20}, audio: true});
  const pc = new RTCPeerConnection();
  for (const t of s.getTracks()) pc.addTransceiver(t, {direction: "sendonly", streams: [s], ...(t.kind === "video" && {sendEncodings: %s})});
  await pc.setLocalDescription(await pc.createOffer());
  const r = await fetch("%s", {
    method: "POST", body: pc.localDescription.sdp, headers: {"Content-Type": "application/sdp", Authorization: "Bearer secret"},
  });
  if (r.status != 201) throw new Error(await r.text());
  await pc.setRemoteDescription({type: "answer", sdp: await r.text()});
})().catch((e) => fetch("/wrong?" + encodeURIComponent(e)));
</script>`

// TestBrowserPublishes checks that a browser publishes from a page of another site, and sends a
// key frame on request, with one layer of the picture and with three (simulcast).
func TestBrowserPublishes(t *testing.T) {
	live.Test(t)
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skip("chromium is not installed: scripts/deps.sh test does that")
	}
	for name, encodings := range map[string]string{
		"one layer":    "[{}]",
		"three layers": `[{rid: "q", scaleResolutionDownBy: 4}, {rid: "h", scaleResolutionDownBy: 2}, {rid: "f"}]`,
	} {
		t.Run(name, func(t *testing.T) { browserPublishes(t, encodings) })
	}
}

func browserPublishes(t *testing.T, encodings string) {
	g, all, _ := published(t)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wrong" {
			t.Errorf("the page: %s", r.URL.RawQuery)
		}
		fmt.Fprintf(w, publishingPage, encodings, g.PublicURL()+"/whip/news")
	}))
	defer page.Close()
	profile, err := os.MkdirTemp("", "sluice-chromium-")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream", "--user-data-dir="+profile, page.URL)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // also its child processes
		_ = cmd.Wait()                                      // it was killed
		// A child process may still write for a moment.
		until(t, "the profile to be removed", func() bool { return os.RemoveAll(profile) == nil })
	}()
	until(t, "key frames that were asked for", func() bool { return len(keyFrames(t, all.of(7).to(mediaTo))) > 2 })
	if s := state(t, g, "news"); fault(s) != "" || s.KeyFrames == 0 {
		t.Errorf("%+v", s)
	}
	for stamp, first := range keyFrames(t, all.of(7).to(mediaTo)) {
		if first != 7 && first != 24 {
			t.Errorf("the key frame at %d begins with a unit of type %d, not with its parameters", stamp, first)
		}
	}
	if reports(t, all.of(7).to(mediaTo)) == 0 || g.totals.unexpected.Load() > 0 {
		t.Errorf("%d reports, %d strange datagrams", reports(t, all.of(7).to(mediaTo)), g.totals.unexpected.Load())
	}
}
