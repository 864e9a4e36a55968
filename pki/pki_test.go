package pki

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluice-net/sluice/internal/pkitest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const year = 365 * 24 * time.Hour

func authority(t *testing.T) (*CA, string) {
	t.Helper()
	dir := t.TempDir()
	ca, err := Init(dir, "test authority 1", 10*year)
	if err != nil {
		t.Fatal(err)
	}
	return ca, dir
}

func issue(t *testing.T, ca *CA, dir string, r Request) Files {
	t.Helper()
	pair, err := ca.Issue(r)
	if err != nil {
		t.Fatal(err)
	}
	if err := pair.Write(dir, r.Name); err != nil {
		t.Fatal(err)
	}
	return Files{Cert: filepath.Join(dir, r.Name+".crt"), Key: filepath.Join(dir, r.Name+".key"), CA: filepath.Join(dir, CACertFile)}
}

// OpenSSL is the independent judge: switches use it.
func TestOpenSSLAccepts(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed")
	}
	ca, dir := authority(t)
	for role, purpose := range map[Role]string{RoleSwitch: "sslclient", RoleAgent: "sslserver", RoleController: "sslserver", RoleOperator: "sslclient", RoleNeighbour: "sslclient", RoleNode: "sslserver"} {
		f := issue(t, ca, dir, Request{Role: role, Name: "n-" + string(role), Hosts: []string{"192.0.2.1", "2001:db8::1", "x.example"}})
		out, err := exec.CommandContext(t.Context(), "openssl", "verify", "-x509_strict", "-purpose", purpose, "-CAfile", f.CA, f.Cert).CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v: %s", role, err, out)
		}
	}
}

func TestFilesAndLimits(t *testing.T) {
	ca, dir := authority(t)
	for name, mode := range map[string]os.FileMode{CAKeyFile: 0o600, CACertFile: 0o644} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v, want mode %o", name, info, err, mode)
		}
	}
	if _, err := Init(dir, "again", year); err == nil {
		t.Error("a second authority was made over the first")
	}
	loaded, err := Load(dir)
	if err != nil || !loaded.Cert.Equal(ca.Cert) {
		t.Errorf("loaded %v, %v", loaded, err)
	}
	pair, err := ca.Issue(Request{Role: RoleAgent, Name: "a", Valid: 100 * year})
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(pair.Cert)
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil || cert.NotAfter.After(ca.Cert.NotAfter) {
		t.Errorf("certificate ends %v, after its authority at %v (%v)", cert.NotAfter, ca.Cert.NotAfter, err)
	}
}

func TestKeyForTheFoldersGroup(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o750|os.ModeSetgid); err != nil {
		t.Fatal(err)
	}
	ca, err := Init(dir, "ca", year)
	if err != nil {
		t.Fatal(err)
	}
	f := issue(t, ca, dir, Request{Role: RoleAgent, Name: "a"})
	for name, want := range map[string]os.FileMode{f.Key: 0o640, filepath.Join(dir, CAKeyFile): 0o600} {
		if info, err := os.Stat(name); err != nil || info.Mode().Perm() != want {
			t.Errorf("%s: %v %v, want mode %o", name, info, err, want)
		}
	}
}

func TestRefusals(t *testing.T) {
	ca, dir := authority(t)
	for _, c := range []struct {
		name string
		r    Request
		want string
	}{
		{"no name", Request{Role: RoleAgent}, "letters"},
		{"path as name", Request{Role: RoleAgent, Name: "../x"}, "letters"},
		{"unknown role", Request{Role: "king", Name: "a"}, "one of"},
		{"host with port", Request{Role: RoleAgent, Name: "a", Hosts: []string{"h:1"}}, "DNS name or an IP"},
		{"host with space", Request{Role: RoleAgent, Name: "a", Hosts: []string{"h h"}}, "DNS name or an IP"},
		{"past validity", Request{Role: RoleAgent, Name: "a", Valid: -1}, "future"},
	} {
		if _, err := ca.Issue(c.r); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := Load(t.TempDir()); err == nil || !strings.Contains(err.Error(), "pki init") {
		t.Errorf("loading nothing: %v", err)
	}
	_, other := authority(t)
	b, err := os.ReadFile(filepath.Join(other, CAKeyFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, CAKeyFile), b, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(dir); err == nil || !strings.Contains(err.Error(), "not the key of") {
		t.Errorf("another authority's key: %v", err)
	}
}

// dial makes one TLS connection. It returns both sides' errors and the serial number of the
// server's certificate.
func dial(t *testing.T, server, client *tls.Config) (serial string, serverErr, clientErr error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	done := make(chan error, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			done <- err
			return
		}
		defer conn.Close()
		s := tls.Server(conn, server)
		if err := s.HandshakeContext(ctx); err != nil {
			done <- err
			return
		}
		_, err = s.Write([]byte("x"))
		done <- err
	}()
	conn, err := (&tls.Dialer{Config: client}).DialContext(ctx, "tcp", l.Addr().String())
	if err == nil {
		c := conn.(*tls.Conn)
		serial = c.ConnectionState().PeerCertificates[0].SerialNumber.String()
		_, err = c.Read(make([]byte, 1))
		c.Close()
	}
	return serial, <-done, err
}

func configs(t *testing.T, server, client Files, required bool, want Role) (*tls.Config, *tls.Config) {
	t.Helper()
	s, err := Server(server, required, want)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Client(client, RoleAgent)
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

func TestMutual(t *testing.T) {
	ca, dir := authority(t)
	local := []string{"127.0.0.1"}
	agent := issue(t, ca, dir, Request{Role: RoleAgent, Name: "agent", Hosts: local})
	controller := issue(t, ca, dir, Request{Role: RoleController, Name: "controller"})
	otherAgent := issue(t, ca, dir, Request{Role: RoleAgent, Name: "other"})
	otherCA, otherDir := authority(t)
	stranger := issue(t, otherCA, otherDir, Request{Role: RoleController, Name: "stranger"})
	stranger.CA = agent.CA
	server := issue(t, ca, dir, Request{Role: RoleController, Name: "controller-server", Hosts: local})
	pkitest.WithoutRole(t, dir, "roleless")
	roleless := Files{Cert: filepath.Join(dir, "roleless.crt"), Key: filepath.Join(dir, "roleless.key"), CA: agent.CA}
	neighbour := issue(t, ca, dir, Request{Role: RoleNeighbour, Name: "neighbour", Hosts: local})
	node := issue(t, ca, dir, Request{Role: RoleNode, Name: "node", Hosts: local})
	mapped := func(f Files, m Mapping) Files { f.Roles = m; return f }
	anonymous := Files{CA: agent.CA}
	for _, c := range []struct {
		name           string
		server, client Files
		required, ok   bool
	}{
		{"controller to agent", agent, controller, true, true},
		{"an agent's certificate is not a controller's", agent, otherAgent, true, false},
		{"another authority", agent, stranger, true, false},
		{"no certificate where one is required", agent, anonymous, true, false},
		{"no certificate where none is required", agent, anonymous, false, true},
		{"the server is not an agent", server, controller, true, false},
		{"the server's name is wrong", otherAgent, controller, true, false},
		{"a neighbour is no controller", agent, neighbour, true, false},
		{"a node is no controller", agent, node, true, false},
		{"a node is no agent", node, controller, true, false},
		{"a client without a role", agent, roleless, true, false},
		{"a server without a role", roleless, controller, true, false},
		{"a client that is given its role", mapped(agent, Mapping{"roleless": RoleController}), roleless, true, true},
		{"a server that is given its role", roleless, mapped(controller, Mapping{"roleless": RoleAgent}), true, true},
		{"a client that is given another", mapped(agent, Mapping{"roleless": RoleAgent, AnyName: RoleController}), roleless, true, false},
		{"a client among all others", mapped(agent, Mapping{"somebody": RoleAgent, AnyName: RoleController}), roleless, true, true},
		{"a name whose certificate has a role", mapped(agent, Mapping{"other": RoleController, AnyName: RoleController}), otherAgent, true, false},
		{"a neighbour's certificate serves nothing", neighbour, controller, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			server, client := configs(t, c.server, c.client, c.required, RoleController)
			_, serverErr, clientErr := dial(t, server, client)
			if ok := serverErr == nil && clientErr == nil; ok != c.ok {
				t.Errorf("server: %v, client: %v; want success %v", serverErr, clientErr, c.ok)
			}
		})
	}
}

func TestRenewalWithoutRestart(t *testing.T) {
	ca, dir := authority(t)
	request := Request{Role: RoleAgent, Name: "agent", Hosts: []string{"127.0.0.1"}}
	agent := issue(t, ca, dir, request)
	controller := issue(t, ca, dir, Request{Role: RoleController, Name: "controller"})
	server, client := configs(t, agent, controller, true, RoleController)
	first, serverErr, clientErr := dial(t, server, client)
	if serverErr != nil || clientErr != nil {
		t.Fatal(serverErr, clientErr)
	}
	issue(t, ca, dir, request)
	deadline := time.Now().Add(time.Minute)
	for {
		serial, serverErr, clientErr := dial(t, server, client)
		if serverErr != nil || clientErr != nil {
			t.Fatal(serverErr, clientErr)
		}
		if serial != first {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the new certificate is not used")
		}
	}
	// Incomplete files do not interrupt service.
	if err := os.WriteFile(agent.Cert, []byte("nonsense"), 0o644); err != nil {
		t.Fatal(err)
	}
	f := &files{Files: agent}
	if _, _, err := f.load(); err == nil {
		t.Error("nonsense was loaded")
	}
	if _, serverErr, clientErr := dial(t, server, client); serverErr != nil || clientErr != nil {
		t.Error(fmt.Errorf("after the file was spoilt: %w, %w", serverErr, clientErr))
	}
}
