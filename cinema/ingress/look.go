package ingress

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// What is looked at of a file before it is played.
const (
	lookTime    = 10 * time.Second // it may take so long
	lookSeconds = 15               // so much is read
	longestGap  = 5.0              // seconds between key frames that are copied
)

// probed is what ffprobe says of a file.
type probed struct {
	Streams []struct {
		Kind    string `json:"codec_type"`
		Codec   string `json:"codec_name"`
		Profile string `json:"profile"`
		Format  string `json:"pix_fmt"`
		Delayed int    `json:"has_b_frames"`
	} `json:"streams"`
	Packets []struct {
		Kind  string `json:"codec_type"`
		Time  string `json:"dts_time"`
		Flags string `json:"flags"`
	} `json:"packets"`
	Format struct {
		BitRate string `json:"bit_rate"`
	} `json:"format"`
}

// look finds out what a file is, by ffprobe. A file of which it says nothing is transcoded.
func (k *child) look(ctx context.Context) shape {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	program := "ffprobe"
	if dir, name := filepath.Split(k.ffmpeg); dir != "" && strings.HasPrefix(name, "ffmpeg") {
		program = dir + "ffprobe" + strings.TrimPrefix(name, "ffmpeg")
	}
	cmd := k.prepare(ctx, &tail{}, []string{
		"-v", "error", "-protocol_whitelist", "file", "-of", "json", "-read_intervals", fmt.Sprintf("%%+%d", lookSeconds),
		"-show_entries", "stream=codec_type,codec_name,profile,pix_fmt,has_b_frames:packet=codec_type,dts_time,flags:format=bit_rate",
		"file:" + k.source.file,
	})
	cmd.Path, cmd.Args[0], cmd.Err = program, program, nil
	if !filepath.IsAbs(program) {
		if cmd.Path, cmd.Err = exec.LookPath(program); cmd.Err != nil {
			return shape{}
		}
	}
	out := &bounded{most: 4 << 20}
	cmd.Stdout = out
	var p probed
	if cmd.Run() != nil || json.Unmarshal(out.b, &p) != nil {
		return shape{}
	}
	return p.shape(float64(k.ch.current().BitRate))
}

// shape says how a file is to be played at a bit rate.
func (p *probed) shape(bitRate float64) shape {
	is := shape{silent: true, copied: true}
	seen := false
	for _, s := range p.Streams {
		switch s.Kind {
		case "audio":
			is.silent = false
		case "video":
			if seen { // the first is played
				continue
			}
			seen = true
			is.copied = s.Codec == "h264" && strings.Contains(s.Profile, "Baseline") && s.Delayed == 0 && s.Format == "yuv420p"
		}
	}
	if rate, err := strconv.ParseFloat(p.Format.BitRate, 64); err != nil || rate > bitRate {
		is.copied = false
	}
	is.copied = is.copied && seen && p.keyed()
	return is
}

// keyed says whether key frames come often enough to wait for the next.
func (p *probed) keyed() bool {
	key, last, seen := 0.0, 0.0, 0
	for _, x := range p.Packets {
		at, err := strconv.ParseFloat(x.Time, 64)
		if x.Kind != "video" || err != nil {
			continue
		}
		last = at
		if strings.HasPrefix(x.Flags, "K") {
			seen++
			key = at
		}
		if at-key > longestGap {
			return false
		}
	}
	return seen > 0 && last-key <= longestGap
}

// bounded keeps the first bytes that are written to it and refuses more.
type bounded struct {
	b    []byte
	most int
}

// Write fails when it is full.
func (w *bounded) Write(b []byte) (int, error) {
	if len(w.b)+len(b) > w.most {
		return 0, fmt.Errorf("more than %d bytes", w.most)
	}
	w.b = append(w.b, b...)
	return len(b), nil
}
