package network

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"testing"
	"time"

	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/openflow"
)

func TestNames(t *testing.T) {
	const d = 0xa1
	for name, c := range map[string]struct {
		cn     string
		dns    []string
		called string
		want   bool
	}{
		"common name":            {"00000000000000a1", nil, "", true},
		"colons":                 {"00:00:00:00:00:00:00:a1", nil, "", true},
		"alternative name":       {"rack 7", []string{"x.example", "00000000000000A1"}, "", true},
		"the operator's name":    {"Edge1", nil, "edge1", true},
		"another identifier":     {"00000000000000a2", nil, "edge1", false},
		"another name":           {"edge2", []string{"edge3"}, "edge1", false},
		"no name is configured":  {"", nil, "", false},
		"a part of the name":     {"a1", nil, "", false},
		"the identifier in text": {"switch 00000000000000a1", nil, "", false},
	} {
		cert := &x509.Certificate{Subject: pkix.Name{CommonName: c.cn}, DNSNames: c.dns}
		if got := certificateNames(cert, d, c.called); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// selfSigned returns a certificate for both ends of a test.
func selfSigned(t *testing.T, name string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestCertificatesAreBoundToIdentifiers checks that a switch can connect only with the identifier
// that its certificate names.
func TestCertificatesAreBoundToIdentifiers(t *testing.T) {
	n, err := New(Config{
		Listen: []string{"127.0.0.1:0"}, BindCertificates: true,
		TLS: &tls.Config{Certificates: []tls.Certificate{selfSigned(t, "controller")}, ClientAuth: tls.RequestClientCert},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	up := make(chan openflow.DatapathID, 4)
	n.Subscribe(func(e Event) {
		if e.Kind == SwitchUp {
			up <- e.Switch
		}
	})
	dial := func(certs ...tls.Certificate) error {
		conn, err := net.Dial("tcp", n.Addr()[0].String())
		if err != nil {
			return err
		}
		client := tls.Client(conn, &tls.Config{InsecureSkipVerify: true, Certificates: certs}) //nolint:gosec // what is tested is the other direction
		return fake.NewSwitch(fake.Options{DPID: 0xa1, Ports: 1}).Run(ctx, client)
	}
	// A refused connection is closed by the controller.
	_ = dial()
	_ = dial(selfSigned(t, "00000000000000a2"))
	select {
	case d := <-up:
		t.Fatalf("switch %v is up by a certificate that does not name it", d)
	default:
	}
	entitled := make(chan error, 1)
	go func() { entitled <- dial(selfSigned(t, "00000000000000a1")) }()
	select {
	case <-up:
	case err := <-entitled:
		t.Errorf("the entitled switch was refused: %v", err)
	case <-time.After(time.Minute):
		t.Error("the entitled switch is not up")
	}
	cancel()
}

// TestIdentifiersThatGoLeaveNothing checks that identifiers which are used only once leave nothing
// behind.
func TestIdentifiersThatGoLeaveNothing(t *testing.T) {
	t.Parallel()
	n, err := New(Config{Listen: []string{"127.0.0.1:0"}, DiscoveryInterval: 50 * time.Millisecond, DiscoverySettle: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	up := make(chan struct{}, 1)
	n.Subscribe(func(e Event) {
		if e.Kind == SwitchUp {
			up <- struct{}{}
		}
	})
	for d := range openflow.DatapathID(100) {
		one, stop := context.WithCancel(ctx)
		left := make(chan error, 1)
		go func() { left <- fake.NewSwitch(fake.Options{DPID: 0xbad000 + d, Ports: 1}).Dial(one, n.Addr()[0]) }()
		<-up
		stop()
		if err := <-left; err != nil {
			t.Fatal(err)
		}
	}
	deadline := time.After(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for len(n.core.Keys()) > 0 {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%d keys are left: %v", len(n.core.Keys()), n.core.Keys())
		}
	}
}

func TestSwitchesThatLeftAreForgotten(t *testing.T) {
	var r repairs
	for d := range openflow.DatapathID(10000) {
		r.switchLeft(d, 0)
	}
	if len(r.leftAt) > 100 {
		t.Errorf("%d switches are remembered", len(r.leftAt))
	}
	r.switchLeft(1, time.Hour)
	if !r.recentlyLeft(1, time.Hour) {
		t.Error("one that has just left is not awaited")
	}
}
