package agent

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/logtest"
	"github.com/sluice-net/sluice/pki"
)

// TestFailedHandshakesFillNoLog checks that failed TLS handshakes on the control port are logged,
// but not each one of a flood.
func TestFailedHandshakesFillNoLog(t *testing.T) {
	var out logtest.Log
	ca := newAuthority(t)
	_, cert := ca.issue("x", pki.RoleAgent)
	cfg := testConfig(addrX)
	cfg.TLS, cfg.Log = DataTLS(cert, ca.pool, nil), out.Logger()
	a, _ := startAgent(t, cfg)
	began := time.Now()
	const strangers = 200
	for range strangers {
		c, err := net.Dial("tcp", a.ControlAddr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte("GET / HTTP/1.0\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(testTimeout))
		_, _ = io.Copy(io.Discard, c) // until the agent has closed it
		_ = c.Close()
	}
	most := 10 + int(time.Since(began)/time.Second) + 1
	if lines := strings.Count(out.String(), "TLS handshake"); lines == 0 || lines > most {
		t.Errorf("%d failed handshakes wrote %d lines", strangers, lines)
	}
}
