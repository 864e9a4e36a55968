package experiment

import (
	"bytes"
	"fmt"
	"image/color"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

const (
	plotWidth  = 7 * vg.Inch
	plotHeight = 4 * vg.Inch
	plotDPI    = 144
)

// palette is the palette of Okabe and Ito, whose colours colour-blind readers can tell apart.
var palette = []color.Color{
	color.RGBA{0x00, 0x72, 0xb2, 0xff},
	color.RGBA{0xd5, 0x5e, 0x00, 0xff},
	color.RGBA{0x00, 0x9e, 0x73, 0xff},
	color.RGBA{0xcc, 0x79, 0xa7, 0xff},
	color.RGBA{0xe6, 0x9f, 0x00, 0xff},
	color.RGBA{0x56, 0xb4, 0xe9, 0xff},
	color.RGBA{0x00, 0x00, 0x00, 0xff},
}

// draw draws the plot.
func (p Plot) draw() (*plot.Plot, error) {
	out := plot.New()
	out.Title.Text, out.X.Label.Text, out.Y.Label.Text = p.Title, p.X, p.Y
	out.Legend.Top, out.Legend.Left = true, p.Left
	out.Add(plotter.NewGrid())
	if !p.LogY {
		out.Y.Min = 0
	}
	for i, s := range p.Series {
		if err := s.addTo(out, i); err != nil {
			return nil, fmt.Errorf("plot %s: line %q: %w", p.Name, s.Label, err)
		}
	}
	if p.LogX {
		out.X.Scale, out.X.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	if p.LogY {
		out.Y.Scale, out.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
	}
	return out, nil
}

func (s Series) addTo(out *plot.Plot, i int) error {
	points := make(plotter.XYs, len(s.X))
	for j := range s.X {
		points[j] = plotter.XY{X: s.X[j], Y: s.Y[j]}
	}
	line, marks, err := plotter.NewLinePoints(points)
	if err != nil {
		return err
	}
	c := palette[i%len(palette)]
	line.Color, line.Width = c, vg.Points(1.5)
	marks.Color, marks.Radius = c, vg.Points(3)
	marks.Shape = draw.CircleGlyph{}
	label := s.Label
	if s.Published {
		line.Dashes = []vg.Length{vg.Points(5), vg.Points(3)}
		marks.Shape = draw.RingGlyph{}
		label += " (published)"
	}
	out.Add(line, marks)
	out.Legend.Add(label, line, marks)
	return nil
}

// write writes NAME.svg and NAME.png to the folder and returns the SVG.
func (p Plot) write(dir string) ([]byte, []string, error) {
	drawn, err := p.draw()
	if err != nil {
		return nil, nil, err
	}
	svg := vgsvg.New(plotWidth, plotHeight)
	drawn.Draw(draw.New(svg))
	var text bytes.Buffer
	if _, err := svg.WriteTo(&text); err != nil {
		return nil, nil, fmt.Errorf("plot %s: %w", p.Name, err)
	}
	png := vgimg.PngCanvas{Canvas: vgimg.NewWith(vgimg.UseWH(plotWidth, plotHeight), vgimg.UseDPI(plotDPI))}
	drawn.Draw(draw.New(png))
	var image bytes.Buffer
	if _, err := png.WriteTo(&image); err != nil {
		return nil, nil, fmt.Errorf("plot %s: %w", p.Name, err)
	}
	files := []string{filepath.Join(dir, p.Name+".svg"), filepath.Join(dir, p.Name+".png")}
	for i, content := range [][]byte{text.Bytes(), image.Bytes()} {
		if err := os.WriteFile(files[i], content, 0o644); err != nil {
			return nil, nil, fmt.Errorf("plot %s: %w", p.Name, err)
		}
	}
	return text.Bytes(), files, nil
}
