package ingress

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"testing"
	"time"

	"github.com/sluice-net/sluice/cinema/gatewayapi"
)

// publishingPage publishes a camera and a microphone at a URL; it says what goes wrong.
const publishingPage = `<!doctype html><script>
(async () => {
  const s = await navigator.mediaDevices.getUserMedia({video: {width: 640, height: 360, frameRate: 20}, audio: true});
  const pc = new RTCPeerConnection();
  for (const t of s.getTracks()) pc.addTransceiver(t, {direction: "sendonly", streams: [s]});
  await pc.setLocalDescription(await pc.createOffer());
  const r = await fetch("%s", {
    method: "POST", body: pc.localDescription.sdp, headers: {"Content-Type": "application/sdp", Authorization: "Bearer secret"},
  });
  if (r.status != 201) throw new Error(await r.text());
  await pc.setRemoteDescription({type: "answer", sdp: await r.text()});
})().catch((e) => fetch("/wrong?" + encodeURIComponent(e)));
</script>`

// A browser publishes, from a page of another site, and makes a key frame when it is asked to.
func TestBrowserPublishes(t *testing.T) {
	if _, err := exec.LookPath("chromium"); err != nil {
		t.Skip("chromium is not installed: scripts/deps.sh test does that")
	}
	g, all, _ := published(t)
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/wrong" {
			t.Errorf("the page: %s", r.URL.RawQuery)
		}
		fmt.Fprintf(w, publishingPage, g.PublicURL()+"/whip/news")
	}))
	defer page.Close()
	cmd := exec.CommandContext(t.Context(), "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--use-fake-ui-for-media-stream", "--use-fake-device-for-media-stream", "--user-data-dir="+t.TempDir(), page.URL)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}()
	until(t, 60*time.Second, "key frames that were asked for", func() bool { return len(keyFrames(t, all.of(7).to(mediaTo))) > 2 })
	if s := state(t, g, "news"); s.OnAir != gatewayapi.OnAirLive || s.Error != "" || time.Duration(s.KeyFrames) < keyFrameEvery || time.Duration(s.KeyFrames) > 2*keyFrameEvery {
		t.Errorf("%+v", s)
	}
	for stamp, first := range keyFrames(t, all.of(7).to(mediaTo)) {
		if first != 7 && first != 24 {
			t.Errorf("the key frame at %d begins with a unit of type %d, not with its parameters", stamp, first)
		}
	}
	if reports(t, all.of(7).to(mediaTo)) == 0 || g.totals.strange.Load() > 0 {
		t.Errorf("%d reports, %d strange datagrams", reports(t, all.of(7).to(mediaTo)), g.totals.strange.Load())
	}
}
