package experiment

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/sluice-net/sluice/lab/testbed"
)

// webRoot is a folder and the web servers that serve its files until close.
type webRoot struct {
	root    string
	servers []*testbed.WebServer
}

func newWebRoot() (webRoot, error) {
	root, err := os.MkdirTemp("", "sluice-web-")
	return webRoot{root: root}, err
}

// serve starts another server of the folder, on a host of a site.
func (w *webRoot) serve(ctx context.Context, env *Env, s *site, host string, port uint16) error {
	logs := filepath.Join(env.Dir, fmt.Sprintf("%s-%d", host, port))
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	web, err := testbed.StartWebServer(ctx, s.lab.Host(host), w.root, logs, port)
	if err == nil {
		w.servers = append(w.servers, web)
	}
	return err
}

func (w *webRoot) close() {
	for _, web := range w.servers {
		web.Stop()
	}
	os.RemoveAll(w.root)
}
