package testbed

import (
	"path/filepath"
	"time"

	"github.com/sluice-net/sluice/pki"
)

// IssueNode writes the certificate of a storage, compute or cache node at a host into dir. The
// deployment's controller accepts it.
func IssueNode(d *Deployment, host, name, dir string) (pki.Files, error) {
	ca, err := pki.Load(d.dir)
	if err != nil {
		return pki.Files{}, err
	}
	pair, err := ca.Issue(pki.Request{Role: pki.RoleNode, Name: name, Hosts: []string{d.lab.ControlAddr(host).String()}, Valid: 24 * time.Hour})
	if err != nil {
		return pki.Files{}, err
	}
	own := filepath.Join(dir, name)
	return pki.Files{Cert: own + ".crt", Key: own + ".key", CA: filepath.Join(d.dir, "ca.crt")}, pair.Write(dir, name)
}
