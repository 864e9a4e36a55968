package gatewayapi

import (
	"cmp"
	"fmt"
)

// Picture names the largest picture that a channel has if its gateway encodes it.
type Picture string

// These are the values of Picture.
const (
	Picture360p  Picture = "360p"
	Picture480p  Picture = "480p"
	Picture720p  Picture = "720p" // the default
	Picture1080p Picture = "1080p"
	Picture1440p Picture = "1440p"
)

// Size returns the most pixels that the longer and the shorter side of the picture have. The zero value is
// Picture720p.
func (p Picture) Size() (long, short int) {
	switch cmp.Or(p, Picture720p) {
	case Picture360p:
		return 640, 360
	case Picture480p:
		return 854, 480
	case Picture1080p:
		return 1920, 1080
	case Picture1440p:
		return 2560, 1440
	}
	return 1280, 720
}

// String returns the name of the picture.
func (p Picture) String() string { return string(cmp.Or(p, Picture720p)) }

// Validate returns an error unless the picture is known. The zero value is valid.
func (p Picture) Validate() error {
	switch p {
	case "", Picture360p, Picture480p, Picture720p, Picture1080p, Picture1440p:
		return nil
	}
	return fmt.Errorf("picture %.20q: want 360p, 480p, 720p, 1080p or 1440p", string(p))
}
