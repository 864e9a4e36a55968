package sos

import (
	"io"
	"net"
	"testing"

	"github.com/sluice-net/sluice/services/sos"
)

// TestSitesShareTheLink checks that the agents of a site get limits while several of them send on the
// link between the sites, and none when one is left.
func TestSitesShareTheLink(t *testing.T) {
	t.Parallel()
	w := newWorld(t, cluster("sosshare"), options{})
	w.serve(80, func(c *net.TCPConn) {
		for block := make([]byte, 64<<10); ; {
			if _, err := c.Write(block); err != nil {
				return
			}
		}
	})
	conns := w.open(2)
	for _, c := range conns {
		go func() { _, _ = io.Copy(io.Discard, c) }()
	}
	limited := func(agent string) bool {
		var paths []sos.PathInfo
		w.get("agents/"+agent+"/paths", &paths)
		for _, p := range paths {
			if p.Limit > 0 {
				return true
			}
		}
		return false
	}
	w.eventually("both senders are limited", func() bool { return limited("y") && limited("y2") })
	_ = conns[0].Close()
	w.eventually("one session is left", func() bool { return len(w.sessions("live")) == 1 })
	w.eventually("its agents are not limited", func() bool {
		for _, agent := range []string{"x", "x2", "y", "y2"} {
			if limited(agent) {
				return false
			}
		}
		return true
	})
	_ = conns[1].Close()
	w.clean()
}
