package compute

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"image"
	_ "image/gif" // is read by Transcode
	"image/jpeg"
	_ "image/png" // as well
	"io"
)

// Builtin is a function that is part of sluice. It runs as a [Program], too.
type Builtin struct {
	Name, Does string
	Run        func(w io.Writer, r io.Reader) error
}

// Builtins lists all built-in functions.
var Builtins = []Builtin{
	{"compress", "compresses (gzip)", compress},
	{"decompress", "decompresses what compress has made of a chunk", decompress},
	{"checksum", "makes the SHA-256, in hexadecimal digits and a line's end", checksum},
	{"transcode", "makes a JPEG image of a GIF, JPEG or PNG image of 4 million pixels at most", transcode},
}

func compress(w io.Writer, r io.Reader) error {
	z := gzip.NewWriter(w)
	_, err := io.Copy(z, r)
	return errors.Join(err, z.Close())
}

func decompress(w io.Writer, r io.Reader) error {
	z, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	_, err = io.Copy(w, z)
	return err
}

func checksum(w io.Writer, r io.Reader) error {
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%x\n", h.Sum(nil))
	return err
}

// maxPixels is the maximum number of pixels of an image that transcode reads. It is checked before
// memory is allocated.
const maxPixels = 4 << 20

func transcode(w io.Writer, r io.Reader) error {
	b, err := io.ReadAll(io.LimitReader(r, int64(MaxPayload)))
	if err != nil {
		return err
	}
	size, _, err := image.DecodeConfig(bytes.NewReader(b))
	if err != nil {
		return err
	}
	if size.Width > maxPixels/max(size.Height, 1) {
		return fmt.Errorf("an image of %d x %d pixels: %d at most", size.Width, size.Height, maxPixels)
	}
	img, _, err := image.Decode(bytes.NewReader(b))
	if err != nil {
		return err
	}
	return jpeg.Encode(w, img, nil)
}
