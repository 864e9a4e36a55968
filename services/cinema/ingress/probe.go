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

// Bounds of the examination of a file before it is played.
const (
	probeTimeout   = 10 * time.Second // duration of the examination
	probeSeconds   = 15               // seconds of the file that are read
	maxKeyFrameGap = 5.0              // longest time between key frames, in seconds, of a file that is copied
)

// probeResult is the output of ffprobe.
type probeResult struct {
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

// probe examines a file, or the stream of an RTSP server, with ffprobe. A source is examined each time
// before it is read, because it may have other media than the last time. If ffprobe fails, probe returns
// the zero value: the source is transcoded, and expected to have picture and sound.
func (f *ffmpegSource) probe(ctx context.Context) sourceProperties {
	var input []string
	switch {
	case f.source.file != "":
		input = []string{
			"-protocol_whitelist", "file", "-read_intervals", fmt.Sprintf("%%+%d", probeSeconds),
			"-show_entries", "stream=codec_type,codec_name,profile,pix_fmt,has_b_frames:packet=codec_type,dts_time,flags:format=bit_rate",
			"file:" + f.source.file,
		}
	case f.source.scheme == "rtsp":
		input = append([]string{"-show_entries", "stream=codec_type,codec_name"}, f.source.input...)
	default:
		return sourceProperties{}
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	program := "ffprobe"
	if dir, name := filepath.Split(f.ffmpeg); dir != "" && strings.HasPrefix(name, "ffmpeg") {
		program = dir + "ffprobe" + strings.TrimPrefix(name, "ffmpeg")
	}
	cmd := f.command(ctx, &tail{source: f.source.address}, append([]string{"-v", "error", "-of", "json"}, input...))
	cmd.Path, cmd.Args[0], cmd.Err = program, program, nil
	if !filepath.IsAbs(program) {
		if cmd.Path, cmd.Err = exec.LookPath(program); cmd.Err != nil {
			return sourceProperties{}
		}
	}
	out := &limitedBuffer{most: 4 << 20}
	cmd.Stdout = out
	var p probeResult
	if cmd.Run() != nil || json.Unmarshal(out.b, &p) != nil {
		return sourceProperties{}
	}
	return p.properties(float64(f.ch.currentSpec().BitRate))
}

// properties returns how the examined source is to be played: which media it has, and whether its video
// can be copied because it is in the house format (package media) and within the bit rate.
func (p *probeResult) properties(bitRate float64) sourceProperties {
	if len(p.Streams) == 0 {
		return sourceProperties{}
	}
	properties := sourceProperties{silent: true, copied: true}
	seen := false
	for _, s := range p.Streams {
		switch s.Kind {
		case "audio":
			properties.silent = false
		case "video":
			if seen { // only the first one is played
				continue
			}
			seen = true
			properties.copied = s.Codec == "h264" && strings.Contains(s.Profile, "Baseline") && s.Delayed == 0 && s.Format == "yuv420p"
		}
	}
	if rate, err := strconv.ParseFloat(p.Format.BitRate, 64); err != nil || rate > bitRate {
		properties.copied = false
	}
	properties.blind = !seen && !properties.silent
	properties.copied = properties.copied && seen && p.keyFramesFrequent()
	return properties
}

// keyFramesFrequent reports whether the time between key frames is never more than maxKeyFrameGap, so
// that viewers can wait for the next one.
func (p *probeResult) keyFramesFrequent() bool {
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
		if at-key > maxKeyFrameGap {
			return false
		}
	}
	return seen > 0 && last-key <= maxKeyFrameGap
}

// limitedBuffer is a buffer with a maximum length.
type limitedBuffer struct {
	b    []byte
	most int
}

// Write implements io.Writer. It returns an error when the buffer is full.
func (w *limitedBuffer) Write(b []byte) (int, error) {
	if len(w.b)+len(b) > w.most {
		return 0, fmt.Errorf("more than %d bytes", w.most)
	}
	w.b = append(w.b, b...)
	return len(b), nil
}
