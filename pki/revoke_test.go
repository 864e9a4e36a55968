package pki

import (
	"crypto/tls"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func revoke(t *testing.T, ca *CA, dir, cert string) {
	t.Helper()
	c, err := ReadCert(cert)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ca.Revoke(dir, c.SerialNumber); err != nil {
		t.Fatal(err)
	}
}

// A revoked certificate is refused by the other side, whichever that is, also by one
// that has run since before.
func TestRevokedIsRefused(t *testing.T) {
	for _, side := range []string{"client", "server"} {
		t.Run(side, func(t *testing.T) {
			ca, dir := authority(t)
			files := map[string]Files{
				"server": issue(t, ca, dir, Request{Role: RoleAgent, Name: "server", Hosts: []string{"127.0.0.1"}}),
				"client": issue(t, ca, dir, Request{Role: RoleController, Name: "client"}),
			}
			server, err := Server(files["server"], true, RoleController)
			if err != nil {
				t.Fatal(err)
			}
			client, err := Client(files["client"], RoleAgent)
			if err != nil {
				t.Fatal(err)
			}
			client.ClientSessionCache = tls.NewLRUClientSessionCache(4) // so that resumed sessions are checked, too
			if _, serverErr, clientErr := dial(t, server, client); serverErr != nil || clientErr != nil {
				t.Fatal(serverErr, clientErr)
			}
			revoke(t, ca, dir, files[side].Cert)
			deadline := time.Now().Add(time.Minute)
			for {
				_, serverErr, clientErr := dial(t, server, client)
				by := map[string]error{"client": serverErr, "server": clientErr}[side]
				if by != nil && strings.Contains(by.Error(), "was revoked") {
					return
				}
				if time.Now().After(deadline) {
					t.Fatalf("still let in: %v, %v", serverErr, clientErr)
				}
			}
		})
	}
}

func TestRevocationsCountOn(t *testing.T) {
	ca, dir := authority(t)
	a, b := issue(t, ca, dir, Request{Role: RoleAgent, Name: "a"}), issue(t, ca, dir, Request{Role: RoleAgent, Name: "b"})
	revoke(t, ca, dir, a.Cert)
	revoke(t, ca, dir, b.Cert)
	revoke(t, ca, dir, b.Cert) // a second revocation changes nothing
	lists, err := readCRLs(CRLFile(a.CA), a.CA)
	if err != nil || len(lists) != 1 || len(lists[0].RevokedCertificateEntries) != 2 || lists[0].Number.Int64() != 3 {
		t.Fatalf("%+v, %v", lists, err)
	}
	r, err := NewRevocations(a.CA)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := ReadCert(a.Cert)
	if err != nil {
		t.Fatal(err)
	}
	for _, damage := range []func() error{
		func() error { return os.WriteFile(r.file, []byte("nothing"), 0o600) },
		func() error { return os.Remove(r.file) },
	} {
		if err := damage(); err != nil {
			t.Fatal(err)
		}
		r.checked = time.Time{}
		if err := r.Check(cert); err == nil {
			t.Error("let in after the file was damaged")
		}
	}
}

func TestRevocationsRefuseWhatIsNotSigned(t *testing.T) {
	ca, dir := authority(t)
	other, foreign := authority(t)
	f := issue(t, ca, dir, Request{Role: RoleAgent, Name: "a"})
	if _, err := other.Revoke(foreign, big.NewInt(7)); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(foreign, "ca.crl"))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{string(b): "signed by none", "garbage": "ca.crl", strings.Repeat("x", maxCRL+1): "more than"} {
		if err := os.WriteFile(CRLFile(f.CA), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Server(f, true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
		if _, err := ca.Revoke(dir, big.NewInt(8)); err == nil {
			t.Errorf("%.20q is replaced", text)
		}
	}
}

// OpenSSL is the independent judge of the list.
func TestOpenSSLKnowsTheRevoked(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("openssl is not installed")
	}
	ca, dir := authority(t)
	good, bad := issue(t, ca, dir, Request{Role: RoleAgent, Name: "good"}), issue(t, ca, dir, Request{Role: RoleAgent, Name: "bad"})
	revoke(t, ca, dir, bad.Cert)
	for f, want := range map[string]string{good.Cert: ": OK", bad.Cert: "certificate revoked"} {
		out, _ := exec.CommandContext(t.Context(), "openssl", "verify", "-crl_check", "-CRLfile", CRLFile(good.CA), "-CAfile", good.CA, f).CombinedOutput()
		if !strings.Contains(string(out), want) {
			t.Errorf("%s: %s, want %q", f, out, want)
		}
	}
}

func TestIssuedUnderAName(t *testing.T) {
	ca, dir := authority(t)
	for _, r := range []Request{{Role: RoleAgent, Name: "a"}, {Role: RoleAgent, Name: "a"}, {Role: RoleAgent, Name: "b"}, {Role: RoleAgent, Name: "a", Valid: time.Nanosecond}} {
		pair, err := ca.Issue(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := Record(dir, pair); err != nil {
			t.Fatal(err)
		}
	}
	issue(t, ca, dir, Request{Role: RoleAgent, Name: "a"}) // without a record, as in older versions
	if got, err := ca.Issued(dir, "a"); err != nil || len(got) != 3 {
		t.Errorf("%v, %v; want 3", got, err)
	}
	if got, err := ca.Issued(dir, "c"); err != nil || len(got) != 0 {
		t.Errorf("%v, %v; want none", got, err)
	}
}
