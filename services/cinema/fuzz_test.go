package cinema

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// FuzzSource checks that an accepted source is one word that begins with a known scheme, and
// that its password is not shown.
func FuzzSource(f *testing.F) {
	for _, s := range []string{"", "test:", "file:/a.mp4", "file:/a/../b", "rtsp://me:hush@10.0.0.1/x", "udp://@239.0.0.1:5000", "srt://[::1]:9?mode=caller", "-i x", "rtsp://x\n"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		shown := gatewayapi.SourceAddress(s).String()
		if sourceFault(gatewayapi.StoredSource(s)) != "" || s == "" {
			return
		}
		scheme, rest, _ := strings.Cut(s, ":")
		if !strings.Contains(" test file rtsp rtmp srt udp ", " "+strings.ToLower(scheme)+" ") || strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
			t.Errorf("%q is accepted", s)
		}
		if user, _, ok := strings.Cut(rest, "@"); ok && strings.Contains(user, ":hush") && strings.Contains(shown, "hush") {
			t.Errorf("%q is shown as %q", s, shown)
		}
	})
}

// FuzzViewers checks that, whatever gateways report, no two viewers have the same port, no
// viewer has an invalid state, and the index by channel agrees with the viewers.
func FuzzViewers(f *testing.F) {
	f.Add([]byte(`[{"id":"00000000000000000000000000000001","port":6000,"channels":["a"]}]`), []byte(`[]`))
	f.Add([]byte(`[{"id":"00000000000000000000000000000001","port":6000,"channels":["a","b"]},{"id":"00000000000000000000000000000002","port":6000,"channels":["a"]}]`),
		[]byte(`[{"id":"00000000000000000000000000000002","port":6000,"channels":["a"]}]`))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		v, now := newViewers(), time.Now()
		for i, b := range [][]byte{first, second, first} {
			var all []gatewayapi.Viewer
			if json.Unmarshal(b, &all) != nil {
				return
			}
			now = now.Add(reportGrace)
			v.applyReport("east", []string{"one", "one", "two"}[i], all, bounds{viewers: 3}, now, func(c string) bool { return c != "secret" })
			ports, entries := map[uint16]bool{}, 0
			for _, x := range v.list() {
				entries += len(x.channels)
				if ports[x.port] || x.port < minPort || !viewerID.MatchString(x.id) || len(x.channels) == 0 || len(x.channels) > gatewayapi.MaxWatched {
					t.Errorf("%+v", x)
				}
				ports[x.port] = true
			}
			for c, of := range v.byChannel {
				if entries -= len(of); c == "secret" || len(of) == 0 {
					t.Errorf("%d viewers of %q", len(of), c)
				}
			}
			if entries != 0 || len(ports) > 3 || len(v.gateways["east"].ports) != len(ports) {
				t.Errorf("%d viewers, ports %v, off by %d", len(ports), v.gateways["east"].ports, entries)
			}
		}
	})
}
