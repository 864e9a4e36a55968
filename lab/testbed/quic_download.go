package testbed

import (
	"bytes"
	"context"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// quicWindow is the largest flow control window of a QUIC client, more than any of the lab's links
// holds.
const quicWindow = "256M"

// QUICServer is an HTTP/3 server of ngtcp2, which sends as many zero bytes as a request's path says.
type QUICServer struct {
	daemon *Daemon
	addr   netip.AddrPort
}

// StartQUICServer starts ngtcp2's server with a certificate of its own, whose files it writes to
// dir. The congestion control is cubic, reno, bbr or bbr2.
func StartQUICServer(ctx context.Context, at Place, dir string, listen netip.AddrPort, congestion string) (*QUICServer, error) {
	cert, key := filepath.Join(dir, "quic.crt"), filepath.Join(dir, "quic.key")
	if err := writeTemporaryCertificate(cert, key); err != nil {
		return nil, fmt.Errorf("QUIC server: %w", err)
	}
	log := filepath.Join(dir, "quic-server.log")
	d, err := StartDaemon(ctx, at, log, "gtlsserver", "--quiet", "--cc", congestion, "--max-dyn-length", "4G",
		listen.Addr().String(), strconv.Itoa(int(listen.Port())), key, cert)
	if err != nil {
		return nil, err
	}
	s := &QUICServer{daemon: d, addr: listen}
	err = Poll(ctx, "the QUIC server", func() error {
		out, err := at.Command(ctx, "ss", "-Hlun", fmt.Sprintf("sport = :%d", listen.Port())).Output()
		if err == nil && len(bytes.TrimSpace(out)) == 0 {
			err = fmt.Errorf("nothing listens on UDP port %d: %s", listen.Port(), Tail(log, lastWords))
		}
		return err
	})
	if err != nil {
		d.Stop()
		return nil, err
	}
	return s, nil
}

// PID returns the server's process ID.
func (s *QUICServer) PID() int { return s.daemon.PID() }

// Stop ends the server.
func (s *QUICServer) Stop() { s.daemon.Stop() }

// QUICDownload holds the measurements of a download over QUIC.
type QUICDownload struct {
	Total     time.Duration // from the client's start to its end
	ClientCPU time.Duration // user and system time of the client
}

// Download has ngtcp2's client at a place fetch a number of bytes. The client does not tell how many
// have arrived; the caller can compare with what a link has delivered.
func (s *QUICServer) Download(ctx context.Context, at Place, size int64) (QUICDownload, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	host, port := s.addr.Addr().String(), strconv.Itoa(int(s.addr.Port()))
	cmd := at.Command(ctx, "gtlsclient", "--quiet", "--no-quic-dump", "--no-http-dump", "--exit-on-all-streams-close",
		"--max-window", quicWindow, "--max-stream-window", quicWindow,
		host, port, fmt.Sprintf("https://%s/%d", s.addr, size))
	began := time.Now()
	out, err := cmd.CombinedOutput()
	d := QUICDownload{Total: time.Since(began)}
	if err != nil {
		return d, fmt.Errorf("download %d bytes over QUIC from %v: %w: %s", size, s.addr, err, strings.TrimSpace(string(out)))
	}
	d.ClientCPU = cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return d, nil
}

// writeTemporaryCertificate writes a new certificate and its key in PEM.
func writeTemporaryCertificate(certFile, keyFile string) error {
	identity, err := temporaryCertificate()
	if err != nil {
		return err
	}
	key, err := x509.MarshalPKCS8PrivateKey(identity.PrivateKey)
	if err != nil {
		return err
	}
	if err := os.WriteFile(certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: identity.Certificate[0]}), 0o600); err != nil {
		return err
	}
	return os.WriteFile(keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}), 0o600)
}
