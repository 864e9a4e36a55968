package sos

import (
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/services/sos"
)

// warm waits until agent x has connections to agent y that were opened after the given time, before
// a session needs them.
func (w *world) warm(after time.Time) {
	w.t.Helper()
	w.eventually("x has connections to y", func() bool {
		var all []sos.WarmInfo
		w.get("warm", &all)
		for _, p := range all {
			if p.ClientAgent == "x" && p.ServerAgent == "y" {
				return p.Error == "" && p.Connections == 2 && p.Since.After(after)
			}
		}
		return false
	})
}

// TestFirstSessionFindsConnections checks that the first session of two agents, also after one of
// them was started again, is carried by connections that were opened before it, and that
// connections and rules go when nothing is whitelisted any more.
func TestFirstSessionFindsConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("soswarm", wan), options{warm: true})
	w.serve(80, func(c *net.TCPConn) { _, _ = io.Copy(c, c); _ = c.CloseWrite() })
	for i, restart := range []string{"", "y", "x"} {
		begun := time.Time{}
		if restart != "" {
			begun = time.Now()
			w.agents[restart].kill()
			w.startAgent(restart, nil)
		}
		w.warm(begun)
		w.echo(80)
		w.eventually("the session has ended", func() bool { return len(w.sessions("past")) == i+1 })
		if r := w.sessions("past")[0]; r.Warm != 2 || r.Lost != 0 {
			t.Errorf("after a restart of %q: %d warm connections, %d lost, want 2 and 0", restart, r.Warm, r.Lost)
		}
	}
	var entries []sos.EntryInfo
	w.get("whitelist", &entries)
	for _, e := range entries {
		if err := w.rest.Do(t.Context(), http.MethodDelete, "/api/v1/sos/whitelist/"+e.ID, nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	w.eventually("no pair has connections", func() bool {
		var all []sos.WarmInfo
		w.get("warm", &all)
		return len(all) == 0
	})
	w.clean()
}
