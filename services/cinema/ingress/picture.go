package ingress

import (
	"cmp"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/sluice-net/sluice/services/cinema/gatewayapi"
)

// maxFrameRate is the largest number of pictures per second that viewers get.
const maxFrameRate = 60

// inputPicture describes the picture of a source. The zero value means that it is not known.
type inputPicture struct {
	width, height int
	// aspect is the width of a pixel divided by its height; zero means 1.
	aspect float64
	// turn is the clockwise angle in degrees by which the picture has to be rotated to be upright:
	// 0, 90, 180 or 270.
	turn int
	// rate is the number of pictures per second; zero means that it is not known.
	rate float64
}

// outputPicture is the picture that viewers get of a source.
type outputPicture struct {
	width, height int
	rate          float64
	level         string // of H.264
	turn          int    // as in inputPicture
	// text says what the picture is and how it differs from the source's; empty if the source's is
	// not known.
	text string
}

// outputOf decides which picture viewers get of a source whose picture is in, in a channel whose picture
// may be as large as format permits. It has even numbers of square pixels, is upright, and has the source's
// shape, as nearly as even numbers permit, and the source's rate. A source whose picture is not known gets
// the size 0x0, which makes filters fit the picture as it comes.
func outputOf(in inputPicture, format gatewayapi.Picture) outputPicture {
	long, short := format.Size()
	rate := min(cmp.Or(in.rate, defaultFrameRate), maxFrameRate)
	if in.width < 1 || in.height < 1 {
		return outputPicture{rate: rate, level: levelOf(long, short, rate)}
	}
	width, height := float64(in.width)*cmp.Or(in.aspect, 1), float64(in.height)
	if in.turn == 90 || in.turn == 270 {
		width, height = height, width
	}
	scale := min(1, float64(long)/max(width, height), float64(short)/min(width, height))
	out := outputPicture{width: even(width*scale, long), height: even(height*scale, long), rate: rate, turn: in.turn}
	out.level = levelOf(out.width, out.height, rate)
	out.text = out.describe(in, format, scale < 1)
	return out
}

// even returns the even number next to x, from 16 to most.
func even(x float64, most int) int { return min(max(2*int(math.Round(x/2)), 16), most) }

// describe returns the text of an output picture.
func (o outputPicture) describe(in inputPicture, format gatewayapi.Picture, scaled bool) string {
	var why []string
	if scaled {
		long, short := format.Size()
		why = append(why, fmt.Sprintf("scaled down from %dx%d, because the channel's picture is %s, at most %dx%d", in.width, in.height, format, long, short))
	}
	if a := cmp.Or(in.aspect, 1); a != 1 {
		why = append(why, fmt.Sprintf("made of square pixels, which were %s times as wide as high in %dx%d", number(a), in.width, in.height))
	}
	if o.turn != 0 {
		why = append(why, fmt.Sprintf("turned by %d degrees", o.turn))
	}
	if len(why) == 0 && (o.width != in.width || o.height != in.height) {
		why = append(why, fmt.Sprintf("with even numbers of pixels in the place of %dx%d", in.width, in.height))
	}
	switch {
	case in.rate == 0:
		why = append(why, fmt.Sprintf("at most %s pictures a second", number(o.rate)))
	case o.rate < in.rate:
		why = append(why, fmt.Sprintf("%s of %s pictures a second", number(o.rate), number(in.rate)))
	default:
		why = append(why, number(o.rate)+" pictures a second")
	}
	return fmt.Sprintf("%dx%d, %s", o.width, o.height, strings.Join(why, ", "))
}

// number formats a number with at most two digits after the point.
func number(x float64) string { return strconv.FormatFloat(math.Round(100*x)/100, 'f', -1, 64) }

// filters returns the filters of ffmpeg that make the picture.
func (o outputPicture) filters(format gatewayapi.Picture) string {
	turn := map[int]string{90: "transpose=clock,", 180: "hflip,vflip,", 270: "transpose=cclock,"}[o.turn]
	if o.width > 0 {
		return turn + fmt.Sprintf("scale=%d:%d,setsar=1", o.width, o.height)
	}
	// The same as in outputOf, in terms of the picture that arrives.
	long, short := format.Size()
	wide := "iw*if(gt(sar,0),sar,1)"
	scale := fmt.Sprintf("min(1,min(%d/max(%s,ih),%d/min(%s,ih)))", long, wide, short, wide)
	return fmt.Sprintf("scale=w='min(max(2*round(%s*%s/2),16),%d)':h='min(max(2*round(ih*%s/2),16),%d)',setsar=1", wide, scale, long, scale, long)
}

// levels holds the levels of H.264 with their maximum macroblocks in a picture and in a second (table A-1),
// from the lowest one that channels have.
var levels = []struct {
	name                string
	perPicture, perTime int
}{{"3.1", 3600, 108000}, {"3.2", 5120, 216000}, {"4.0", 8192, 245760}, {"4.2", 8704, 522240}, {"5.0", 22080, 589824}, {"5.1", 36864, 983040}, {"5.2", 36864, 2073600}}

// levelOf returns the lowest level that permits a picture.
func levelOf(width, height int, rate float64) string {
	const block = 16
	blocks := (width + block - 1) / block * ((height + block - 1) / block)
	for _, l := range levels {
		if blocks <= l.perPicture && float64(blocks)*rate <= float64(l.perTime) {
			return l.name
		}
	}
	return levels[len(levels)-1].name
}

// usualRates holds the usual numbers of pictures per second.
var usualRates = []float64{5, 10, 12, 12.5, 15, 20, 24, 25, 30, 48, 50, 60}

// roundRate returns the lowest usual rate that is not noticeably below a rate, which was measured in a short
// time. A picture is lost now and then at a rate below the true one, and none at a rate above it.
func roundRate(rate float64) float64 {
	for _, usual := range usualRates {
		if rate <= usual*1.005 && rate > usual*0.96 {
			return usual
		}
	}
	return math.Ceil(rate)
}
