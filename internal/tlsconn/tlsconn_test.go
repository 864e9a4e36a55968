package tlsconn_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-net/sluice/internal/tlsconn"
)

// pair are configurations of a server and a client that know each other. The server's stands
// behind GetConfigForClient, as those of files that change do.
func pair(t *testing.T) (server, client *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}, &x509.Certificate{SerialNumber: big.NewInt(1)}, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	certs := []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}
	own := &tls.Config{Certificates: certs, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, NextProtos: []string{"h2", "http/1.1"}}
	server = &tls.Config{Certificates: certs, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return own, nil }}
	return server, &tls.Config{Certificates: certs, RootCAs: pool}
}

// refusing is a verification that refuses from some time on.
type refusing struct{ atomic.Bool }

var errRevoked = errors.New("it was revoked")

func (r *refusing) verify(tls.ConnectionState) error {
	if r.Load() {
		return errRevoked
	}
	return nil
}

// An open connection ends when its peer is refused, on either side, and reading and writing return
// the reason; until then it stays.
func TestRefusedPeersAreEnded(t *testing.T) {
	for _, side := range []string{"server", "client"} {
		t.Run(side, func(t *testing.T) {
			var r refusing
			serverTLS, clientTLS := pair(t)
			if side == "server" {
				own, _ := serverTLS.GetConfigForClient(nil)
				own.VerifyConnection = r.verify
			} else {
				clientTLS.VerifyConnection = r.verify
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			l = tlsconn.NewListener(l, serverTLS)
			defer l.Close()
			accepted := make(chan net.Conn, 1)
			go func() {
				c, err := l.Accept()
				if err == nil {
					_, err = c.Write([]byte("a")) // with it the greeting
				}
				if err != nil {
					t.Error(err)
				}
				accepted <- c
			}()
			client, err := tlsconn.DialTLS(nil, clientTLS, time.Minute)(t.Context(), "tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			b := make([]byte, 1)
			if _, err := client.Read(b); err != nil {
				t.Fatal(err)
			}
			server := <-accepted
			defer server.Close()
			ends := map[string]net.Conn{"server": server, "client": client}
			_ = ends[side].SetReadDeadline(time.Now().Add(tlsconn.Every + tlsconn.Every/2))
			if _, err := ends[side].Read(b); err == nil || !strings.Contains(err.Error(), "timeout") {
				t.Fatalf("before it is refused, reading gives %v", err)
			}
			r.Store(true)
			_ = ends[side].SetReadDeadline(time.Now().Add(time.Minute))
			if _, err := ends[side].Read(b); !errors.Is(err, errRevoked) {
				t.Errorf("reading gives %v, want why it was ended", err)
			}
			if _, err := ends[side].Write(b); !errors.Is(err, errRevoked) {
				t.Errorf("writing gives %v, want why it was ended", err)
			}
		})
	}
}

// A transport speaks HTTP/2 on such connections, and makes a new one when one was ended.
func TestTransport(t *testing.T) {
	serverTLS, clientTLS := pair(t)
	var r refusing
	own, _ := serverTLS.GetConfigForClient(nil)
	own.VerifyConnection = r.verify
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, streamed := r.URL.Query()["stay"]; streamed {
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		}
	})}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(tlsconn.NewListener(l, serverTLS)) }()
	defer func() {
		_ = srv.Close()
		<-ended
	}()
	transport := &http.Transport{DialTLSContext: tlsconn.DialTLS(nil, clientTLS, time.Minute), ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	ask := func(query string) (*http.Response, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+l.Addr().String()+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		return transport.RoundTrip(req)
	}
	res, err := ask("/?stay")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.ProtoMajor != 2 {
		t.Errorf("%s is spoken, want HTTP/2", res.Proto)
	}
	r.Store(true)
	if _, err := res.Body.Read(make([]byte, 1)); err == nil {
		t.Error("the stream goes on")
	}
	if res, err := ask("/"); err == nil {
		_ = res.Body.Close()
		t.Error("a new connection is let in")
	}
	r.Store(false)
	res, err = ask("/")
	if err != nil {
		t.Fatal(err)
	}
	_ = res.Body.Close()
}
