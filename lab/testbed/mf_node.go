package testbed

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
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

// KeptChunks returns the number of chunks that the storage node with a folder holds for each name.
// binary is the path of sluice. The node may be running.
func KeptChunks(ctx context.Context, binary, dir string) (map[string]int, error) {
	out, err := exec.CommandContext(ctx, binary, "--json", "mf", "storage", "list", "--dir", dir).Output()
	if err != nil {
		return nil, fmt.Errorf("list the chunks of the storage node in %s: %w", dir, err)
	}
	var all []struct {
		Destination string
		Chunks      int
	}
	if err := json.Unmarshal(out, &all); err != nil {
		return nil, fmt.Errorf("list the chunks of the storage node in %s: %w", dir, err)
	}
	kept := map[string]int{}
	for _, x := range all {
		kept[x.Destination] += x.Chunks
	}
	return kept, nil
}
