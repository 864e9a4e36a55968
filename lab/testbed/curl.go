package testbed

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// Download holds the result of one download by curl.
type Download struct {
	Local, Remote string        // address:port of the client's socket and of its peer
	Connect       time.Duration // of the TCP handshake
	FirstByte     time.Duration
	Total         time.Duration
	Bytes         int64
}

// Mbit returns the goodput in Mbit/s over the whole time, handshake included.
func (d Download) Mbit() float64 { return float64(d.Bytes) * 8 / d.Total.Seconds() / 1e6 }

const curlFormat = `{"local_ip":"%{local_ip}","local_port":"%{local_port}","remote_ip":"%{remote_ip}","remote_port":"%{remote_port}",` +
	`"connect":%{time_connect},"first":%{time_starttransfer},"total":%{time_total},"size":%{size_download}}`

// curl returns a command for one transfer that prints curlFormat.
func curl(ctx context.Context, at Place, args ...string) *exec.Cmd {
	usual := []string{"--silent", "--show-error", "--fail", "--noproxy", "*", "--connect-timeout", "15", "--write-out", curlFormat}
	return at.Command(ctx, "curl", append(usual, args...)...)
}

// Upload puts a file at a URL with curl, and returns how long it took, handshake included.
func Upload(ctx context.Context, at Place, file, url string) (time.Duration, error) {
	cmd := curl(ctx, at, "--header", "Expect:", "--upload-file", file, "--output", os.DevNull, url)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return 0, fmt.Errorf("curl %s: %w: %s", url, err, strings.TrimSpace(errs.String()))
	}
	d, err := parseCurl(out.Bytes())
	return d.Total, err
}

// Curl downloads a URL into a file. While it runs, it calls progress, unless nil, a few times a
// second with the bytes received so far.
func Curl(ctx context.Context, at Place, url, file string, progress func(bytes int64)) (Download, error) {
	cmd := curl(ctx, at, "--output", file, url)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Start(); err != nil {
		return Download{}, fmt.Errorf("start curl: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case err := <-done:
			if err != nil {
				return Download{}, fmt.Errorf("curl %s: %w: %s", url, err, strings.TrimSpace(errs.String()))
			}
			return parseCurl(out.Bytes())
		case <-tick.C:
			if info, err := os.Stat(file); err == nil && progress != nil {
				progress(info.Size())
			}
		}
	}
}

func parseCurl(text []byte) (Download, error) {
	var r struct {
		LocalIP    string  `json:"local_ip"`
		LocalPort  string  `json:"local_port"`
		RemoteIP   string  `json:"remote_ip"`
		RemotePort string  `json:"remote_port"`
		Connect    float64 `json:"connect"`
		First      float64 `json:"first"`
		Total      float64 `json:"total"`
		Size       int64   `json:"size"`
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return Download{}, fmt.Errorf("read curl's report %q: %w", text, err)
	}
	return Download{
		Local: r.LocalIP + ":" + r.LocalPort, Remote: r.RemoteIP + ":" + r.RemotePort,
		Connect: inSeconds(r.Connect), FirstByte: inSeconds(r.First), Total: inSeconds(r.Total), Bytes: r.Size,
	}, nil
}

func inSeconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// CurlMany downloads many URLs at once, each over a connection of its own, by curl processes of at
// most 250 parallel transfers. File i is written to DIR/i. The error names the first transfers that
// failed.
func CurlMany(ctx context.Context, at Place, urls []string, dir string) error {
	const perProcess = 250
	type process struct {
		errs bytes.Buffer
		wait func() error
	}
	var running []*process
	var failed []string
	for start := 0; start < len(urls); start += perProcess {
		end := min(start+perProcess, len(urls))
		config := filepath.Join(dir, fmt.Sprintf("curl-%d.cfg", start))
		if err := os.WriteFile(config, []byte(curlConfig(urls[start:end], start, dir)), 0o600); err != nil {
			return fmt.Errorf("configure curl: %w", err)
		}
		p := &process{}
		cmd := at.Command(ctx, "curl", "--no-progress-meter", "--parallel", "--parallel-immediate", "--parallel-max", fmt.Sprint(perProcess), "--config", config)
		cmd.Stderr, cmd.WaitDelay = &p.errs, 5*time.Second
		if err := cmd.Start(); err != nil {
			failed = append(failed, err.Error())
			break
		}
		p.wait = cmd.Wait
		running = append(running, p)
	}
	for _, p := range running {
		if err := p.wait(); err != nil {
			failed = append(failed, err.Error()+": "+firstLines(p.errs.String(), 3))
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("curl: %s", strings.Join(failed, "; "))
	}
	return nil
}

func curlConfig(urls []string, start int, dir string) string {
	var b strings.Builder
	for i, url := range urls {
		if i > 0 {
			b.WriteString("next\n")
		}
		fmt.Fprintf(&b, "url = %q\noutput = %q\n", url, filepath.Join(dir, fmt.Sprint(start+i)))
		b.WriteString("silent\nshow-error\nfail\nnoproxy = \"*\"\nconnect-timeout = 30\nheader = \"Connection: close\"\n")
	}
	return b.String()
}

func firstLines(s string, n int) string {
	lines := strings.SplitN(strings.TrimSpace(s), "\n", n+1)
	return strings.Join(lines[:min(n, len(lines))], " / ")
}
