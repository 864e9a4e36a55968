package ingress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/sluice-net/sluice/kit/control"
	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
	"github.com/sluice-net/sluice/services/cinema/media"
)

// thumbnailArgs are the arguments that make ffmpeg convert one picture to a thumbnail. They keep ffmpeg
// from opening files or connections, whatever the input contains.
var thumbnailArgs = []string{
	"-hide_banner", "-nostats", "-loglevel", "error", "-threads", "1", "-protocol_whitelist", "pipe", "-f", "h264", "-i", "pipe:0",
	"-frames:v", "1", "-vf", "scale='min(320,iw)':'min(180,ih)':force_original_aspect_ratio=decrease", "-q:v", "6", "-f", "mjpeg", "pipe:1",
}

// thumbnail makes a thumbnail of a channel's last key frame.
func (g *Gateway) thumbnail(ctx context.Context, name string) (t gatewayapi.Thumbnail, err error) {
	c := g.channel(name)
	if c == nil || c.state().OnAir != gatewayapi.OnAirLive {
		return t, &control.Problem{Title: "no picture", Code: control.CodeNotFound, Detail: clip(name) + " is not on air"}
	}
	picture := c.keyFrame(ctx)
	if len(picture) == 0 {
		return t, &control.Problem{Title: "no picture", Code: control.CodeNotFound, Detail: clip(name) + " has had no key frame yet"}
	}
	cmd := exec.CommandContext(ctx, g.cfg.FFmpeg, thumbnailArgs...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = []string{"LC_ALL=C"}, "/", killTimeout
	out, stderr := &thumbnailBuffer{}, &tail{}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(picture), out, stderr
	if err := cmd.Run(); err != nil {
		return t, fmt.Errorf("thumbnail of %s: %w: %s", name, err, stderr.String())
	}
	if out.Len() == 0 {
		return t, fmt.Errorf("thumbnail of %s: ffmpeg makes none of its key frame", name)
	}
	return gatewayapi.Thumbnail{At: time.Now().UTC(), JPEG: out.Bytes()}, nil
}

// keyFrame returns the channel's last key frame. If the key frame has not arrived completely, it waits
// for the rest for at most a second. It returns nil if there is no complete key frame by then, or if
// ctx ends.
func (c *channel) keyFrame(ctx context.Context) []byte {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		if picture := media.FirstPicture(c.cache.Group()); len(picture) > 0 {
			return picture
		}
		select {
		case <-ctx.Done():
			return nil
		case <-again.C:
		}
	}
}

// thumbnailBuffer is a buffer with the maximum size of a thumbnail.
type thumbnailBuffer struct{ bytes.Buffer }

var errLarge = errors.New("more than a thumbnail may have")

// Write implements io.Writer. It returns an error when the buffer is full.
func (s *thumbnailBuffer) Write(b []byte) (int, error) {
	if s.Len()+len(b) > gatewayapi.MaxThumbnail {
		return 0, errLarge
	}
	return s.Buffer.Write(b)
}
