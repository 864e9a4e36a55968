package controller

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-net/sluice/controller/networkapi"
	"github.com/sluice-net/sluice/internal/live"
	"github.com/sluice-net/sluice/internal/selfbuild"
	"github.com/sluice-net/sluice/network/fake"
	"github.com/sluice-net/sluice/network/packet"
)

// smallDisk mounts a file system that only this test and its child processes see, and that
// disappears with the last of them.
func smallDisk(t *testing.T, kind, size string) string {
	t.Helper()
	dir := t.TempDir()
	runtime.LockOSThread() // never unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	mount := exec.CommandContext(t.Context(), "mount", "-t", "tmpfs", "-o", "size="+size, "sluice-test", dir)
	if kind == "ext4" {
		image := filepath.Join(t.TempDir(), "image")
		make := exec.CommandContext(t.Context(), "sh", "-ec", `truncate -s "$2" "$1"; mkfs.ext4 -q -m 0 "$1"`, "sh", image, size)
		if out, err := make.CombinedOutput(); err != nil {
			t.Skipf("needs mkfs.ext4: %v: %s", err, out)
		}
		mount = exec.CommandContext(t.Context(), "mount", "-t", "ext4", "-o", "loop", image, dir)
	}
	if out, err := mount.CombinedOutput(); err != nil && kind == "ext4" {
		t.Skipf("needs loop devices: %v: %s", err, out)
	} else if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Cleanup(func() { _ = unix.Unmount(dir, unix.MNT_DETACH) })
	return dir
}

// fill uses up the free space of the disk, and returns a function that frees it.
func fill(t *testing.T, disk string) (free func()) {
	t.Helper()
	file := filepath.Join(disk, "somebody-elses")
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for block := make([]byte, 1<<20); len(block) > 0; {
		if _, err := f.Write(block); errors.Is(err, syscall.ENOSPC) {
			block = block[:len(block)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
	return func() {
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
	}
}

// path is two switches with a host at each, and what the right host gets.
type path struct {
	*wired
	mu  sync.Mutex
	got [][]byte
}

func newPath() *path {
	p := &path{wired: &wired{}}
	p.left = fake.NewSwitch(fake.Options{DPID: leftID, Ports: 3, OnOutput: func(port uint32, frame []byte) { pass(port, frame, p.right) }})
	p.right = fake.NewSwitch(fake.Options{DPID: rightID, Ports: 3, OnOutput: func(port uint32, frame []byte) {
		if port == 1 {
			p.mu.Lock()
			p.got = append(p.got, bytes.Clone(frame))
			p.mu.Unlock()
		}
		pass(port, frame, p.left)
	}})
	return p
}

// carries fails unless a datagram of a new flow reaches the right host.
func (p *path) carries(t *testing.T, c *program, port uint16) {
	t.Helper()
	eventually(t, "both directions of the link are known", func() bool {
		var links []networkapi.Link
		c.read(t, "/api/v1/network/links", &links)
		return len(links) == 2
	})
	eventually(t, "both hosts are known", func() bool {
		p.talk(t)
		var hosts []networkapi.Host
		c.read(t, "/api/v1/network/hosts", &hosts)
		return len(hosts) == 2
	})
	frame := packet.AppendUDP(nil, packet.Frame{Src: leftMAC, Dst: rightMAC}, packet.UDPDatagram{
		Src: netip.AddrPortFrom(leftIP, port), Dst: netip.AddrPortFrom(rightIP, port), Payload: fmt.Appendf(nil, "datagram %d", port),
	})
	if _, err := p.left.Receive(1, frame); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the datagram arrives", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, f := range p.got {
			if bytes.HasSuffix(f, fmt.Appendf(nil, "datagram %d", port)) {
				return true
			}
		}
		return false
	})
}

// whitelistEntry sends a write to the API: entry n.
func (p *program) whitelist(t *testing.T, n int) (status int, text string) {
	t.Helper()
	return p.ask(t, http.MethodPost, "/api/v1/sos/whitelist", fmt.Sprintf(`{"clients":["10.%d.%d.0/24"],"servers":["10.1.0.7"],"ports":["80"]}`, n/256, n%256))
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

func (p *program) whitelisted(t *testing.T) int {
	t.Helper()
	var all []map[string]any
	eventually(t, "the service has read its store", func() bool {
		status, _ := p.ask(t, http.MethodGet, "/api/v1/sos/whitelist", "")
		return status == http.StatusOK
	})
	p.read(t, "/api/v1/sos/whitelist", &all)
	return len(all)
}

// changes are writes of other kinds, which all succeed once.
var changes = []struct{ method, path, body string }{
	{http.MethodPatch, "sos/config", `{"idle":"90s"}`},
	{http.MethodPost, "sos/disable", ""},
	{http.MethodPost, "sos/agents", `{"name":"west","url":"https://192.0.2.7:8440","addrs":["10.0.0.11"]}`},
	{http.MethodPut, "handover/pools/campus", `{"prefix":"10.9.0.0/24","gateway":"10.9.0.1"}`},
	{http.MethodPost, "qos/critical", `{"name":"backup","rate":"1kbit","match":{"tcp_dst":"80"}}`},
}

// state returns what the changes would change.
func (p *program) state(t *testing.T) string {
	t.Helper()
	var all strings.Builder
	for _, path := range []string{"sos/config", "sos/agents", "handover/pools", "qos/critical"} {
		status, text := p.ask(t, http.MethodGet, "/api/v1/"+path, "")
		if status != http.StatusOK {
			t.Fatalf("%s: %d %s", path, status, text)
		}
		all.WriteString(text)
	}
	return all.String()
}

// refusesChanges fails unless all changes are refused and change nothing.
func (p *program) refusesChanges(t *testing.T, disk string) {
	t.Helper()
	before := p.state(t)
	for _, c := range changes {
		if status, text := p.ask(t, c.method, "/api/v1/"+c.path, c.body); status != http.StatusServiceUnavailable || !strings.Contains(text, disk) {
			t.Errorf("%s %s on the full disk: %d %s", c.method, c.path, status, text)
		}
	}
	if after := p.state(t); after != before {
		t.Errorf("what was refused has changed\n%s\nto\n%s", before, after)
	}
}

// refusesWrites fails unless writes are refused repeatedly, with the reason, while everything else
// works.
func (p *program) refusesWrites(t *testing.T, way *path, disk, reason string, port uint16, entries int) {
	t.Helper()
	eventually(t, "writes are refused", func() bool {
		status, text := p.whitelist(t, 200)
		if status == 0 {
			p.ends(t)
			t.Fatalf("the controller has ended with %v:\n%s", p.cmd.ProcessState, p.log)
		}
		return status == http.StatusServiceUnavailable && strings.Contains(text, disk)
	})
	before := p.whitelisted(t)
	for range 100 {
		status, text := p.whitelist(t, 201)
		if status != http.StatusServiceUnavailable || !strings.Contains(text, disk) || !strings.Contains(text, reason) {
			t.Fatalf("a write: %d %s, want %q\n%s", status, text, reason, p.log)
		}
	}
	if n := p.whitelisted(t); n != before || n < entries {
		t.Errorf("%d entries, %d before, %d were accepted", n, before, entries)
	}
	way.carries(t, p, port)
	var s Status
	p.read(t, "/api/v1/status", &s)
	if s.Store.Writable || !strings.Contains(s.Store.Reason, disk) {
		t.Errorf("status: %+v", s.Store)
	}
	if _, text := p.ask(t, http.MethodGet, "/metrics", ""); !strings.Contains(text, "sluice_store_writable 0") {
		t.Error("the metrics do not say that the store is not writable")
	}
	if status, text := p.ask(t, http.MethodGet, "/readyz", ""); status != http.StatusOK || !strings.Contains(text, "accepts no writes") {
		t.Errorf("readyz: %d %s", status, text)
	}
}

// startCarrying starts a controller on a folder, with switches that forward packets.
func startCarrying(t *testing.T, binary, dir string) (c *program, way *path, stop func()) {
	t.Helper()
	c = startProgram(t, binary, dir)
	c.ready(t, dir)
	way = newPath()
	stop = way.connect(t, c.switches)
	way.carries(t, c, 1000)
	return c, way, stop
}

// TestFullDisk checks that a full disk prevents only the controller's writes. The controller starts
// on the full disk, and accepts writes again when there is space.
func TestFullDisk(t *testing.T) {
	live.Test(t)
	t.Parallel()
	binary := selfbuild.Binary(t)
	for _, kind := range []string{"tmpfs", "ext4"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			fullDisk(t, binary, smallDisk(t, kind, "160m"))
		})
	}
}

func fullDisk(t *testing.T, binary, disk string) {
	dir := filepath.Join(disk, "sluice")
	c, way, stop := startCarrying(t, binary, dir)
	for n := range 20 {
		if status, text := c.whitelist(t, n); status != http.StatusCreated {
			t.Fatalf("add an entry: %d %s", status, text)
		}
	}
	var writers sync.WaitGroup
	full := make(chan struct{})
	for w := range 8 { // while it runs full
		writers.Go(func() {
			for n := 0; n < 200 && !closed(full); n++ {
				c.whitelist(t, 1000*(w+1)+n)
			}
		})
	}
	free := fill(t, disk)
	close(full)
	writers.Wait()
	c.refusesWrites(t, way, disk, "is full", 1001, 20)
	entries := c.whitelisted(t)
	c.refusesChanges(t, disk)

	for i, how := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM, syscall.SIGTERM, syscall.SIGKILL} {
		c.end(t, how)
		stop()
		c.calm(t)
		if n := strings.Count(c.log.String(), "\n"); n > 60 {
			t.Errorf("%d lines of log:\n%s", n, c.log)
		}
		fill(t, disk) // what it has given back as well
		c = startProgram(t, binary, dir)
		c.ready(t, dir)
		stop = way.connect(t, c.switches)
		if n := c.whitelisted(t); n != entries {
			t.Errorf("started again after %v: %d entries, %d before", how, n, entries)
		}
		c.refusesWrites(t, way, disk, "is full", 1002+uint16(i), entries)
	}

	free()
	eventually(t, "writes are accepted again", func() bool { status, _ := c.whitelist(t, 100); return status == http.StatusCreated })
	for n := range 100 { // and go on to be
		if status, text := c.whitelist(t, 101+n); status != http.StatusCreated {
			t.Fatalf("write %d with room again: %d %s", n, status, text)
		}
	}
	for _, change := range changes {
		if status, text := c.ask(t, change.method, "/api/v1/"+change.path, change.body); status/100 != 2 {
			t.Errorf("%s %s with room again: %d %s", change.method, change.path, status, text)
		}
	}
	entries = c.whitelisted(t)
	var s Status
	c.read(t, "/api/v1/status", &s)
	if !s.Store.Writable || s.Store.Reason != "" {
		t.Errorf("status with room again: %+v", s.Store)
	}
	c.tells(t, "store.writes.refused")
	c.tells(t, "store.writes.resumed")
	c.end(t, syscall.SIGTERM)
	stop()
	c = startProgram(t, binary, dir)
	c.ready(t, dir)
	if n := c.whitelisted(t); n != entries {
		t.Errorf("after all of it: %d entries, %d before", n, entries)
	}
	c.calm(t)
}

// TestFirstStartOnFullDisk checks that a first start on a full disk fails with a line that names
// the needed space.
func TestFirstStartOnFullDisk(t *testing.T) {
	live.Test(t)
	t.Parallel()
	binary := selfbuild.Binary(t)
	disk := smallDisk(t, "tmpfs", "64m")
	dir := filepath.Join(disk, "sluice")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	free := fill(t, disk)
	c := startProgram(t, binary, dir)
	c.ends(t)
	if text := c.log.String(); c.cmd.ProcessState.ExitCode() != 1 || strings.Count(text, "\n") != 1 || !strings.Contains(text, dir+" is full") || !strings.Contains(text, "32MiB are needed") {
		t.Errorf("%v:\n%s", c.cmd.ProcessState, text)
	}
	free()
	c = startProgram(t, binary, dir)
	c.ready(t, dir)
	if status, text := c.whitelist(t, 1); status != http.StatusCreated {
		t.Errorf("a write with room: %d %s", status, text)
	}
}
