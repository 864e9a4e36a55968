package testbed

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/lab"
)

// TestShapedLinkTakesPacketsOneByOne checks that ShapeLinks sets the rate of a link, and that hosts
// pass packets to it one by one. A bucket of tens of milliseconds must not send all packets that
// TCP makes in one piece, and then nothing for as long as the bucket lasts.
func TestShapedLinkTakesPacketsOneByOne(t *testing.T) {
	t.Parallel()
	l := lab.New(t, lab.Topology{
		Name: "even", Hosts: []lab.Host{{Name: "h1"}, {Name: "h2"}},
		Links: []lab.Link{{Name: "h1-h2", A: lab.End{Node: "h1"}, B: lab.End{Node: "h2"}}},
	})
	if err := ShapeLinks(t.Context(), l, func(lab.Link) float64 { return 10e6 }); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"h1", "h2"} {
		h := l.Host(name)
		out, err := h.Command(t.Context(), "ip", "-d", "-j", "link", "show", "dev", "eth0").Output()
		if err != nil {
			t.Fatal(err)
		}
		var links []struct {
			Segments int `json:"gso_max_segs"`
		}
		if err := json.Unmarshal(out, &links); err != nil || len(links) != 1 || links[0].Segments != 1 {
			t.Errorf("%s gives its link more than one packet at a time: %v, %s", name, err, out)
		}
		disciplines, err := h.Command(t.Context(), "tc", "qdisc", "show", "dev", "eth0").Output()
		if err != nil || !strings.Contains(string(disciplines), "rate 10Mbit") {
			t.Errorf("%s does not send at 10 Mbit/s: %v, %s", name, err, disciplines)
		}
	}
	if out, err := l.Host("h1").Command(t.Context(), "ping", "-n", "-q", "-c", "3", "-i", "0.2", "-W", "5", l.Host("h2").Addr().String()).CombinedOutput(); err != nil {
		t.Errorf("the link carries nothing: %v\n%s", err, out)
	}
}
