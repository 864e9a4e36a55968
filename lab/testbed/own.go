package testbed

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-net/sluice/api/client"
	"github.com/sluice-net/sluice/lab"
	"github.com/sluice-net/sluice/pki"
)

// OwnProgram is a program, in a lab, that includes services of the caller's own: its controller,
// and the services' agents on hosts. All of its files are in one folder.
type OwnProgram struct {
	// Client is a client of the controller's API. It is set while the controller runs.
	Client *client.Client

	lab         *lab.Lab
	dir, binary string
}

// NewOwnProgram writes certificates and configurations for the controller and for an agent on each
// of the hosts. The program is this process's executable under the given name. NewOwnProgram starts
// nothing.
func NewOwnProgram(l *lab.Lab, dir, name string, hosts ...string) (*OwnProgram, error) {
	p := &OwnProgram{lab: l, dir: dir, binary: filepath.Join(dir, name)}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	if err := os.Symlink(self, p.binary); err != nil {
		return nil, err
	}
	ca, err := pki.Init(dir, name, time.Hour)
	if err != nil {
		return nil, err
	}
	issue := func(role pki.Role, name, address string) error {
		pair, err := ca.Issue(pki.Request{Role: role, Name: name, Hosts: []string{address}})
		if err != nil {
			return err
		}
		return pair.Write(dir, name)
	}
	if err := issue(pki.RoleController, "controller", p.address()); err != nil {
		return nil, err
	}
	files := map[string]string{"controller": fmt.Sprintf(`data_dir: %[1]s/state
api: {listen: %[2]s:8080, tls: {cert: %[1]s/controller.crt, key: %[1]s/controller.key, ca: %[1]s/ca.crt}}
openflow: {listen: ["%[3]v"], plaintext: true}
network: {discovery: {interval: 500ms, timeout: 4s}}
agents: {tls: {cert: %[1]s/controller.crt, key: %[1]s/controller.key, ca: %[1]s/ca.crt}}
`, dir, p.address(), l.ControllerAddr())}
	for _, h := range hosts {
		at := l.Host(h).ControlAddr()
		if err := issue(pki.RoleAgent, h, at.String()); err != nil {
			return nil, err
		}
		files[h] = fmt.Sprintf(`name: %[5]s
control: {listen: "%[2]v:8440", tls: {cert: %[1]s/%[5]s.crt, key: %[1]s/%[5]s.key, ca: %[1]s/ca.crt}}
data: {address: %[3]v}
announce: {server: "%[4]s"}
`, dir, at, l.Host(h).Addr(), p.url(), h)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *OwnProgram) address() string { return p.lab.ControllerAddr().Addr().String() }

func (p *OwnProgram) url() string { return "https://" + p.address() + ":8080" }

// StartController starts the controller, and returns when it knows the given number of links. stop
// ends it.
func (p *OwnProgram) StartController(ctx context.Context, links int) (stop func(), err error) {
	d, err := StartDaemon(context.WithoutCancel(ctx), p.lab.Control(), filepath.Join(p.dir, "controller.log"), p.binary,
		"controller", "--config", filepath.Join(p.dir, "controller.yaml"))
	if err != nil {
		return nil, err
	}
	if err := p.connect(ctx, links); err != nil {
		d.Stop()
		return nil, err
	}
	return func() { p.Client.Close(); d.Stop() }, nil
}

// connect makes the client, and waits until the controller knows the given number of links.
func (p *OwnProgram) connect(ctx context.Context, links int) error {
	var token []byte
	err := Poll(ctx, "the token", func() (err error) {
		token, err = os.ReadFile(filepath.Join(p.dir, "state", "token"))
		return err
	})
	if err != nil {
		return err
	}
	trust, err := pki.Client(pki.Files{CA: filepath.Join(p.dir, "ca.crt")}, pki.RoleController)
	if err != nil {
		return err
	}
	p.Client, err = client.New(client.Options{Server: p.url(), Token: strings.TrimSpace(string(token)), TLS: trust, Dial: p.lab.Control().DialContext})
	if err != nil {
		return err
	}
	return Poll(ctx, "the links", func() error {
		var all []json.RawMessage
		err := p.Client.Get(ctx, "/api/v1/network/links", &all)
		if err == nil && len(all) != links {
			err = fmt.Errorf("%d of %d", len(all), links)
		}
		return err
	})
}

// StartAgent starts the agent on a host: the program with these arguments and the host's
// configuration.
func (p *OwnProgram) StartAgent(ctx context.Context, host string, args ...string) (*Daemon, error) {
	args = append(args, "--config", filepath.Join(p.dir, host+".yaml"))
	return StartDaemon(context.WithoutCancel(ctx), p.lab.Host(host), p.AgentLog(host), p.binary, args...)
}

// AgentLog returns the path of the file with the output of the agent on a host.
func (p *OwnProgram) AgentLog(host string) string { return filepath.Join(p.dir, host+".log") }
