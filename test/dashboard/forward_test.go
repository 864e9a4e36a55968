package dashboard

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/lab/testbed"
	"github.com/sluice-net/sluice/pki"
)

// dial connects to the API of a controller.
type dial func(context.Context) (net.Conn, error)

// api is the way to the API of a controller in the control namespace.
func api(l *lab.Lab) dial {
	return func(ctx context.Context) (net.Conn, error) {
		return l.Control().DialContext(ctx, "tcp", "127.0.0.1:8080")
	}
}

// secureAPI is the way to the API of a controller that is there for gateways too: by TLS, of
// which the browser sees nothing.
func secureAPI(t *testing.T, l *lab.Lab, d *testbed.Deployment, gateway string) dial {
	t.Helper()
	files, at := d.GatewayFiles(gateway)
	u, err := url.Parse(at)
	if err != nil {
		t.Fatal(err)
	}
	trust, err := pki.Client(pki.Files{CA: files.CA}, pki.RoleController)
	if err != nil {
		t.Fatal(err)
	}
	trust.ServerName = u.Hostname()
	return func(ctx context.Context) (net.Conn, error) {
		c, err := l.Control().DialContext(ctx, "tcp", u.Host)
		if err != nil {
			return nil, err
		}
		secure := tls.Client(c, trust)
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = c.Close()
			return nil, err
		}
		return secure, nil
	}
}

// forward makes an API reachable from here, or from a host, until the test ends.
func forward(t *testing.T, to dial, in *lab.LiveHost) string {
	t.Helper()
	var ln net.Listener
	listen := func() (err error) {
		ln, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		return err
	}
	err := error(nil)
	if in == nil {
		err = listen()
	} else {
		err = in.Do(listen)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var open sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		_ = ln.Close()
		open.Wait()
	})
	open.Go(func() {
		for {
			inside, err := ln.Accept()
			if err != nil {
				return // closed
			}
			open.Go(func() { join(ctx, to, inside) })
		}
	})
	return "http://" + ln.Addr().String()
}

// join copies both ways between a connection and the API until one end closes or ctx ends.
func join(ctx context.Context, to dial, inside net.Conn) {
	defer inside.Close()
	outside, err := to(ctx)
	if err != nil {
		return // the browser sees the closed connection, and the test what the page says
	}
	defer outside.Close()
	stop := context.AfterFunc(ctx, func() {
		_ = inside.Close()
		_ = outside.Close()
	})
	defer stop()
	var back sync.WaitGroup
	back.Go(func() {
		_, _ = io.Copy(inside, outside)
		_ = inside.Close()
	})
	_, _ = io.Copy(outside, inside)
	_ = outside.Close()
	back.Wait()
}

func tokenOf(t *testing.T, d *testbed.Deployment) string {
	t.Helper()
	token, err := os.ReadFile(d.TokenFile())
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(token))
}
