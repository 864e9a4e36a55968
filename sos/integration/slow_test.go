package integration

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/sluice-net/sluice/lab"
)

// TestSlowReaderAfterBothEnds has a client close its side, and read only long after
// the server has sent everything and closed: what waits at the client's agent is
// still the session's, and the switches have to lead it there.
func TestSlowReaderAfterBothEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, lab.WAN("sosslow", wan), options{})
	const size = 48 << 10 // more than the client's buffer, less than with that of its agent
	closed := make(chan error, 1)
	w.serve(80, func(c *net.TCPConn) {
		_, err := io.Copy(io.Discard, c)
		if err == nil {
			_, err = io.CopyN(c, content(7), size)
		}
		if err == nil {
			err = c.Close()
		}
		closed <- err
	})
	c := w.mustDial(80)
	if err := c.SetReadBuffer(16 << 10); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-closed:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("the server has not got rid of its content")
	}
	// Longer than rules ever outlived their session's agents.
	look := time.NewTicker(100 * time.Millisecond)
	defer look.Stop()
	for until := time.Now().Add(4 * time.Second); time.Now().Before(until); <-look.C {
		if len(w.serviceRules("s1")) == 0 {
			t.Fatal("the session's rules are gone while its client has not read")
		}
	}
	w.wantContent(c, 7, size)
	w.clean()
}
