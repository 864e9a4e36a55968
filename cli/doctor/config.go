package doctor

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/sluice-net/sluice/config"
	"github.com/sluice-net/sluice/pki"
	"github.com/sluice-net/sluice/services/sos"
)

// Soon is the time before the expiry of a certificate at which a finding begins to warn of it.
const Soon = 30 * 24 * time.Hour

// ForController checks whether this machine has what the configuration of a controller needs: folders,
// addresses and certificates.
func ForController(ctx context.Context, c *config.Controller) []Finding {
	out := []Finding{folder("data folder", c.DataDir), clock(), listen(ctx, "api.listen", c.API.Listen)}
	for _, a := range c.OpenFlow.Listen {
		out = append(out, listen(ctx, "openflow.listen", a))
	}
	if config.Of[*sos.Section](c).Enabled && !c.Agents.TLS.Enabled() {
		out = append(out, Finding{
			Check: "agents.tls", Level: Warn, Found: "no certificate: no agent can be used",
			Advice: "sluice pki init; sluice pki issue controller NAME; then set agents.tls.cert, key and ca",
		})
	}
	for _, t := range c.Certificates() {
		out = append(out, certificate(t.Key, t.TLS))
	}
	return about(Controller, out)
}

// ForAgent checks whether this machine has what the configuration of an agent needs: addresses, a
// certificate, and a suitable interface.
func ForAgent(ctx context.Context, a *config.Agent) []Finding {
	out := []Finding{listen(ctx, "control.listen", a.Control.Listen), certificate("control.tls", a.Control.TLS)}
	if addr := a.Data.Address; addr.IsValid() {
		out = append(out, listen(ctx, "data.address", config.Address{AddrPort: netip.AddrPortFrom(addr, 0)}))
		out = append(out, Host().dataInterface(ctx, addr)...)
	}
	return about(Agent, append(out, clock()))
}

func folder(check, dir string) Finding {
	f := Finding{Check: check, Level: OK, Found: dir}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		f.Level, f.Found = Info, dir+" does not exist yet, and will be made"
	case err != nil:
		f.Level, f.Found, f.Advice = Fail, err.Error(), "name a folder that can be used"
	case !info.IsDir():
		f.Level, f.Found, f.Advice = Fail, dir+" is not a folder", "name another one"
	case syscall.Access(dir, 0x2) != nil:
		f.Level, f.Found, f.Advice = Fail, dir+" cannot be written", "run as its owner, or name another folder"
	case info.Mode().Perm()&0o077 != 0:
		f.Level, f.Found, f.Advice = Warn, fmt.Sprintf("%s is open to others (mode %o)", dir, info.Mode().Perm()), "it holds secrets: chmod 700 "+dir
	}
	return f
}

// listen checks an address by listening on it for a moment.
func listen(ctx context.Context, check string, a config.Address) Finding {
	f := Finding{Check: check, Level: OK, Found: a.String() + " is free"}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", a.String())
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		f.Level, f.Found, f.Advice = Warn, a.String()+" is in use", "fine if it is a running sluice; otherwise find its program with: ss -ltnp"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		f.Level, f.Found, f.Advice = Fail, a.Addr().String()+" is on no interface of this machine", "see: ip address"
	case err != nil:
		f.Level, f.Found, f.Advice = Fail, err.Error(), "name an address and port that this user may listen on"
	default:
		_ = l.Close() // nothing was accepted
	}
	return f
}

// certificate checks one certificate with its key and authority.
func certificate(check string, t config.TLS) Finding {
	f := Finding{Check: check, Level: Fail}
	fail := func(found, advice string) Finding {
		f.Found, f.Advice = found, advice
		return f
	}
	if _, err := tls.LoadX509KeyPair(t.Cert, t.Key); err != nil {
		return fail(err.Error(), "cert and key must be a pair: \"sluice pki issue\" makes one")
	}
	cert, err := pki.ReadCert(t.Cert)
	if err != nil {
		return fail(err.Error(), "\"sluice pki issue\" makes a certificate")
	}
	if t.CA != "" {
		if err := verify(cert, t.CA); err != nil {
			return fail(err.Error(), "certificate and authority must belong together, if both sides use the same authority")
		}
		revocations, err := pki.NewRevocations(t.CA)
		if err == nil {
			err = revocations.Check(cert)
		}
		if err != nil {
			return fail(err.Error(), "the file of revoked certificates must be the authority's, see \"sluice pki revoke\"; a revoked certificate has to be replaced: \"sluice pki issue\"")
		}
	}
	left := time.Until(cert.NotAfter)
	f.Found = fmt.Sprintf("%s, until %s", cert.Subject.CommonName, cert.NotAfter.Format(time.DateOnly))
	switch {
	case left < 0:
		f.Advice = "it has expired: renew it with \"sluice pki issue\""
	case left < Soon:
		f.Level, f.Advice = Warn, "it expires soon: renew it with \"sluice pki issue\", no restart is needed"
	default:
		f.Level = OK
	}
	return f
}

func verify(cert *x509.Certificate, caFile string) error {
	b, err := os.ReadFile(caFile)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(b) {
		return fmt.Errorf("%s: no certificate in PEM form in it", caFile)
	}
	_, err = cert.Verify(x509.VerifyOptions{
		Roots: roots, CurrentTime: cert.NotBefore.Add(time.Second), // the time is judged separately
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	return err
}
