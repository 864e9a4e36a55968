package handover

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/sluice-net/sluice/services/handover"
	"github.com/sluice-net/sluice/services/handover/mobile"
)

// device is a host with the daemon for mobile devices.
type device struct {
	w    *world
	host string
	dir  string
	cmd  *exec.Cmd
	done chan error
	log  *logBuffer
	http *http.Client
	ip   netip.Addr
}

const vniMAC = "06:dd:00:00:00:01"

// device registers a host with all its interfaces, and a key, and starts the
// daemon on it.
func (w *world) device(binary, host, class string, interfaces int) *device {
	w.t.Helper()
	d := &device{w: w, host: host, dir: w.t.TempDir(), log: &logBuffer{}}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		w.t.Fatal(err)
	}
	spec := handover.DeviceSpec{MACs: []string{vniMAC}, Class: class, Pool: pool, Key: hex.EncodeToString(key)}
	names := ""
	for i := range interfaces {
		spec.MACs = append(spec.MACs, hostMAC(w.lab.Host(host), i).String())
		names += fmt.Sprintf("  eth%d: {order: %d}\n", i, i)
	}
	w.put("devices/"+host, spec)
	config, keyFile := filepath.Join(d.dir, "mobile.yaml"), filepath.Join(d.dir, "key")
	socket := filepath.Join(d.dir, "socket")
	text := fmt.Sprintf("device: %s\nkey_file: %s\nstate_dir: %s/state\nsocket: %s\nvni: {name: mobile0, mac: %q}\n"+
		"resolver: \"\"\ninterfaces:\n%s", host, keyFile, d.dir, socket, vniMAC, names)
	if w.steadfast {
		text += "probe: {interval: 0s}\n"
	}
	text += w.mobile
	if err := errors.Join(os.WriteFile(config, []byte(text), 0o600), os.WriteFile(keyFile, []byte(spec.Key+"\n"), 0o600)); err != nil {
		w.t.Fatal(err)
	}
	d.cmd = w.lab.Host(host).Command(context.Background(), binary, "mobile", "run", "--config", config)
	d.cmd.Stdout, d.cmd.Stderr = d.log, d.log
	d.cmd.WaitDelay = time.Second
	if err := d.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	d.done = make(chan error, 1)
	go func() { d.done <- d.cmd.Wait() }()
	d.http = &http.Client{Timeout: waitLimit, Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	w.t.Cleanup(func() {
		if w.t.Failed() {
			w.t.Logf("daemon on %s:\n%s", host, d.log)
		}
		d.end()
	})
	w.eventually("the device has an address", func() bool {
		s, err := d.status()
		if err == nil && s.VNI.Address.IsValid() && s.Active != "" {
			d.ip = s.VNI.Address.Addr()
		}
		return d.ip.IsValid()
	})
	return d
}

// end ends the daemon as a service manager does.
func (d *device) end() {
	d.http.CloseIdleConnections()
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Signal(os.Interrupt)
	select {
	case <-d.done:
	case <-time.After(waitLimit):
		d.w.t.Errorf("the daemon on %s does not end", d.host)
		_ = d.cmd.Process.Kill()
		<-d.done
	}
	d.cmd = nil
}

func (d *device) ask(method, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(context.Background(), method, "http://mobile"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := d.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s %s: %s", method, path, answer)
	}
	return json.Unmarshal(answer, out)
}

func (d *device) status() (mobile.Status, error) {
	var s mobile.Status
	return s, d.ask(http.MethodGet, "/v1/status", nil, &s)
}

// move moves the device to another of its interfaces.
func (d *device) move(name string) (mobile.Move, error) {
	var m mobile.Move
	return m, d.ask(http.MethodPost, "/v1/move", mobile.MoveRequest{Interface: name, Hold: -1}, &m)
}

// stream starts packets from the server to the device itself.
func (d *device) stream() *stream {
	return d.w.stream(d.host, netip.AddrPortFrom(d.ip, 5000))
}
