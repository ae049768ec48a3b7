//! Chart as SVG: lines over two numeric axes, or bars beside names. It has its own background, light or dark
//! according to the reader's system, so that it is readable everywhere.

use std::fmt::Write as _;

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::number::{DIGITS, rounded};
use super::scale::Scale;
use crate::results::Chart;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

/// Colours other than those of lines, for light and dark backgrounds.
const GROUND: Tone = Tone { light: RGBColor(255, 255, 255), dark: RGBColor(13, 17, 23) };
const INK: Tone = Tone { light: RGBColor(31, 35, 40), dark: RGBColor(230, 237, 243) };
const AXIS: Tone = Tone { light: RGBColor(110, 119, 129), dark: RGBColor(139, 148, 158) };
const GRID: Tone = Tone { light: RGBColor(222, 226, 230), dark: RGBColor(45, 51, 59) };

/// Colours of lines, the same on both backgrounds.
const LINES: [RGBColor; 8] = [
    RGBColor(47, 129, 247),
    RGBColor(217, 84, 30),
    RGBColor(26, 150, 92),
    RGBColor(158, 106, 240),
    RGBColor(196, 64, 138),
    RGBColor(140, 122, 31),
    RGBColor(27, 145, 160),
    RGBColor(120, 128, 137),
];

const PLOT: (u32, u32) = (640, 400);
const TEXT: f64 = 15.0;
const HEADING: f64 = 20.0;

struct Tone {
    light: RGBColor,
    dark: RGBColor,
}

/// Renders the chart.
pub(super) fn svg(chart: &Chart) -> Result<String, String> {
    let bars = !chart.x.names.is_empty();
    check(chart)?;
    let key = if bars && chart.lines.len() == 1 { 0 } else { key_width(chart) };
    let height =
        if bars { 110 + rows(chart.x.names.len()) * (14 + 24 * rows(chart.lines.len())) } else { PLOT.1 };
    let mut drawn = String::new();
    {
        let root = SVGBackend::with_string(&mut drawn, (PLOT.0 + key, height)).into_drawing_area();
        draw(chart, &root, bars, key).map_err(|error| error.to_string())?;
    }
    Ok(with_a_dark_ground(&drawn))
}

fn check(chart: &Chart) -> Result<(), String> {
    if !chart.y.names.is_empty() {
        return Err("only the horizontal axis can have names".to_owned());
    }
    let places: Vec<f64> = (0_u32..).map(f64::from).take(chart.x.names.len()).collect();
    let named = |x: &f64| places.is_empty() || places.iter().any(|place| place.total_cmp(x).is_eq());
    for line in &chart.lines {
        if let Some((x, _)) = line.points.iter().find(|(x, _)| !named(x)) {
            return Err(format!("{}: nothing is named at {x}", line.name));
        }
    }
    Ok(())
}

fn draw(chart: &Chart, root: &Area<'_>, bars: bool, key: u32) -> Drawn {
    root.fill(&GROUND.light)?;
    let below = root.margin(8, 8, 8, 8).titled(&chart.title, ink(HEADING))?;
    let (plot, beside) = below.split_horizontally(PLOT.0 - 16);
    if bars {
        draw_bars(chart, &plot)?;
    } else {
        draw_lines(chart, &plot)?;
    }
    if key > 0 {
        draw_key(chart, &beside)?;
    }
    root.present()?;
    Ok(())
}

fn draw_lines(chart: &Chart, area: &Area<'_>) -> Drawn {
    let points = || chart.lines.iter().flat_map(|line| &line.points);
    let x = Scale::over(&points().map(|(x, _)| *x).collect::<Vec<_>>(), chart.x.log)?;
    let y = Scale::over(&points().map(|(_, y)| *y).collect::<Vec<_>>(), chart.y.log)?;
    let mut plot = ChartBuilder::on(area)
        .margin(12)
        .x_label_area_size(48)
        .y_label_area_size(76)
        .build_cartesian_2d(x, y)?;
    plot.configure_mesh()
        .bold_line_style(GRID.light)
        .light_line_style(TRANSPARENT)
        .axis_style(AXIS.light)
        .label_style(ink(TEXT))
        .x_desc(&chart.x.label)
        .y_desc(&chart.y.label)
        .draw()?;
    for (line, colour) in chart.lines.iter().zip(LINES.into_iter().cycle()) {
        plot.draw_series(LineSeries::new(line.points.iter().copied(), colour.stroke_width(2)))?;
        plot.draw_series(line.points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
    }
    Ok(())
}

/// Bars are horizontal, so that their names have room.
fn draw_bars(chart: &Chart, area: &Area<'_>) -> Drawn {
    let lengths: Vec<f64> = chart.lines.iter().flat_map(|line| &line.points).map(|(_, y)| *y).collect();
    // On a logarithmic axis the shortest bar would have no length.
    let shorter = lengths.iter().copied().reduce(f64::min).filter(|_| chart.y.log).map(|least| least / 2.0);
    let values = Scale::over(&lengths.iter().copied().chain(shorter).collect::<Vec<_>>(), chart.y.log)?;
    let begin = if chart.y.log { values.low() } else { 0.0 };
    let longest = chart.x.names.iter().map(|name| width(name)).max().unwrap_or(0);
    let mut plot = ChartBuilder::on(area)
        .margin(12)
        .margin_right(64)
        .x_label_area_size(48)
        .y_label_area_size((longest + 16).clamp(60, 320))
        .build_cartesian_2d(values, Scale::of_names(&chart.x.names))?;
    plot.configure_mesh()
        .disable_y_mesh()
        .bold_line_style(GRID.light)
        .light_line_style(TRANSPARENT)
        .axis_style(AXIS.light)
        .label_style(ink(TEXT))
        .x_desc(&chart.y.label)
        .draw()?;
    let thickness = 0.8 / f64::from(rows(chart.lines.len()).max(1));
    let tops = (0_u32..).map(|number| f64::from(number) * thickness - 0.4);
    for ((line, colour), top) in chart.lines.iter().zip(LINES.into_iter().cycle()).zip(tops) {
        plot.draw_series(line.points.iter().map(|(x, y)| {
            let corners = [(begin, x + top + 0.05 * thickness), (*y, x + top + 0.95 * thickness)];
            Rectangle::new(corners, colour.filled())
        }))?;
        let style = ink(TEXT).pos(Pos::new(HPos::Left, VPos::Center));
        plot.draw_series(line.points.iter().map(|(x, y)| {
            let figure = Text::new(rounded(*y, DIGITS), (6, 0), style.clone());
            EmptyElement::at((*y, x + top + thickness / 2.0)) + figure
        }))?;
    }
    Ok(())
}

fn draw_key(chart: &Chart, area: &Area<'_>) -> Drawn {
    let style = ink(TEXT).pos(Pos::new(HPos::Left, VPos::Center));
    let places = (0_i32..).map(|number| 24 + 22 * number);
    for ((line, colour), y) in chart.lines.iter().zip(LINES.into_iter().cycle()).zip(places) {
        area.draw(&Rectangle::new([(0, y - 5), (14, y + 5)], colour.filled()))?;
        area.draw(&Text::new(line.name.clone(), (22, y), style.clone()))?;
    }
    Ok(())
}

fn ink(size: f64) -> TextStyle<'static> {
    TextStyle::from(("sans-serif", size).into_font()).color(&INK.light)
}

fn key_width(chart: &Chart) -> u32 {
    chart.lines.iter().map(|line| width(&line.name) + 40).max().unwrap_or(0)
}

/// Approximate width of a name in pixels.
fn width(name: &str) -> u32 {
    rows(name.chars().count()) * 7
}

fn rows(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX / 64).min(u32::MAX / 64)
}

/// Adds the colours for a dark background. The drawing names colours by value only.
fn with_a_dark_ground(drawn: &str) -> String {
    let mut rules = String::new();
    for tone in [GROUND, INK, AXIS, GRID] {
        let (light, dark) = (value(tone.light), value(tone.dark));
        for property in ["fill", "stroke"] {
            let _ = write!(rules, "[{property}=\"{light}\"]{{{property}:{dark}}}");
        }
    }
    let style = format!("<style>@media (prefers-color-scheme:dark){{{rules}}}</style>\n");
    let head = drawn.find(">\n").map_or(0, |at| at + 2);
    format!("{}{style}{}", &drawn[..head], &drawn[head..])
}

fn value(RGBColor(red, green, blue): RGBColor) -> String {
    format!("#{red:02X}{green:02X}{blue:02X}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::{Axis, Line};

    fn axis(label: &str, log: bool, names: &[&str]) -> Axis {
        Axis { label: label.to_owned(), log, names: names.iter().map(|name| (*name).to_owned()).collect() }
    }

    fn chart(x: Axis, y: Axis, lines: &[(&str, &[(f64, f64)])]) -> Chart {
        let line = |(name, points): &(&str, &[(f64, f64)])| Line {
            name: (*name).to_owned(),
            points: points.to_vec(),
        };
        Chart { id: "c".to_owned(), title: "C".to_owned(), x, y, lines: lines.iter().map(line).collect() }
    }

    /// Attributes of every element of that name.
    fn elements<'a>(svg: &'a str, name: &str) -> Vec<&'a str> {
        let start = format!("{name} ");
        svg.split('<').filter(|part| part.starts_with(&start)).collect()
    }

    fn number(element: &str, attribute: &str) -> f64 {
        let (_, rest) = element.split_once(&format!(" {attribute}=\"")).unwrap();
        rest.split_once('"').unwrap().0.parse().unwrap()
    }

    #[test]
    fn points_on_logarithmic_axes_are_as_far_apart_as_their_ratios() {
        let points = [(1.0, 2.0), (10.0, 20.0), (100.0, 200.0), (1_000.0, 2_000.0)];
        let drawn = svg(&chart(axis("x", true, &[]), axis("y", true, &[]), &[("a", &points)])).unwrap();
        let circles = elements(&drawn, "circle");
        let steps = |attribute| -> Vec<f64> {
            let places: Vec<f64> = circles.iter().map(|circle| number(circle, attribute)).collect();
            places.windows(2).map(|pair| pair[1] - pair[0]).collect()
        };
        for steps in [steps("cx"), steps("cy")] {
            assert_eq!(steps.len(), 3);
            assert!(
                steps.iter().all(|step| (step - steps[0]).abs() <= 1.0 && step.abs() > 20.0),
                "{steps:?}"
            );
        }
    }

    #[test]
    fn points_on_a_linear_axis_are_as_far_apart_as_their_differences() {
        let points = [(0.0, 0.0), (10.0, 1.0), (40.0, 4.0)];
        let drawn = svg(&chart(axis("x", false, &[]), axis("y", false, &[]), &[("a", &points)])).unwrap();
        let places: Vec<f64> = elements(&drawn, "circle").iter().map(|circle| number(circle, "cx")).collect();
        assert!(((places[2] - places[0]) - 4.0 * (places[1] - places[0])).abs() <= 3.0, "{places:?}");
    }

    #[test]
    fn one_point_is_drawn() {
        for log in [false, true] {
            let drawn =
                svg(&chart(axis("x", log, &[]), axis("y", log, &[]), &[("a", &[(64.0, 1.5)])])).unwrap();
            assert_eq!(elements(&drawn, "circle").len(), 1);
        }
    }

    #[test]
    fn no_lines_are_axes_alone() {
        let drawn = svg(&chart(axis("across", false, &[]), axis("up", true, &[]), &[])).unwrap();
        assert!(drawn.contains("across") && drawn.contains("up"));
        assert!(elements(&drawn, "circle").is_empty());
    }

    #[test]
    fn bars_are_as_long_as_their_values_and_say_them() {
        let bars = [(0.0, 40_000.0), (1.0, 80_000.0)];
        let drawn = svg(&chart(
            axis("", false, &["redis", "fjall"]),
            axis("per second", false, &[]),
            &[("rate", &bars)],
        ));
        let drawn = drawn.unwrap();
        let colour = format!("fill=\"{}\"", value(LINES[0]));
        let lengths: Vec<f64> = elements(&drawn, "rect")
            .into_iter()
            .filter(|bar| bar.contains(&colour))
            .map(|bar| number(bar, "width"))
            .collect();
        assert_eq!(lengths.len(), 2);
        assert!((lengths[1] - 2.0 * lengths[0]).abs() <= 2.0, "{lengths:?}");
        for text in ["redis", "fjall", "40,000", "80,000", "per second"] {
            assert!(drawn.contains(&format!("\n{text}\n")) || drawn.contains(&format!(">{text}")), "{text}");
        }
    }

    #[test]
    fn the_shortest_bar_on_a_logarithmic_axis_has_a_length() {
        let bars = [(0.0, 1.0), (1.0, 1_000.0)];
        let drawn =
            svg(&chart(axis("", false, &["one", "two"]), axis("ms", true, &[]), &[("p99", &bars)])).unwrap();
        let colour = format!("fill=\"{}\"", value(LINES[0]));
        let mut bars = elements(&drawn, "rect").into_iter().filter(|bar| bar.contains(&colour));
        assert!(bars.all(|bar| number(bar, "width") > 10.0));
    }

    #[test]
    fn names_are_escaped() {
        let mut odd =
            chart(axis("a & b", false, &[]), axis("y", false, &[]), &[("<script> \"x\"", &[(1.0, 1.0)])]);
        odd.title = "p99 < 2 & more".to_owned();
        let drawn = svg(&odd).unwrap();
        assert!(drawn.contains("p99 &lt; 2 &amp; more") && drawn.contains("&lt;script&gt; &quot;x&quot;"));
        assert!(!drawn.contains("<script"));
    }

    #[test]
    fn what_cannot_be_drawn_is_refused() {
        let zero = chart(axis("x", false, &[]), axis("y", true, &[]), &[("a", &[(1.0, 0.0)])]);
        assert!(svg(&zero).unwrap_err().contains("logarithmic"));
        let nameless = chart(axis("", false, &["one"]), axis("y", false, &[]), &[("a", &[(1.0, 1.0)])]);
        assert_eq!(svg(&nameless).unwrap_err(), "a: nothing is named at 1");
        assert!(svg(&chart(axis("x", false, &[]), axis("y", false, &["n"]), &[])).is_err());
    }

    /// Contrast of two colours by WCAG 2.
    fn contrast(one: RGBColor, other: RGBColor) -> f64 {
        let part = |value: u8| {
            let value = f64::from(value) / 255.0;
            if value <= 0.04045 { value / 12.92 } else { ((value + 0.055) / 1.055).powf(2.4) }
        };
        let light = |RGBColor(red, green, blue): RGBColor| {
            0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue)
        };
        let (one, other) = (light(one) + 0.05, light(other) + 0.05);
        (one / other).max(other / one)
    }

    #[test]
    fn everything_is_legible_on_both_grounds() {
        for ground in [GROUND.light, GROUND.dark] {
            for line in LINES {
                assert!(contrast(line, ground) >= 3.0, "{line:?} on {ground:?}: {}", contrast(line, ground));
            }
        }
        assert!(contrast(INK.light, GROUND.light) >= 7.0 && contrast(INK.dark, GROUND.dark) >= 7.0);
        let drawn =
            svg(&chart(axis("x", false, &[]), axis("y", false, &[]), &[("a", &[(1.0, 1.0)])])).unwrap();
        let known = [GROUND, INK, AXIS, GRID].map(|tone| value(tone.light));
        let lines = LINES.map(value);
        let body = drawn.split_once("</style>").unwrap().1;
        for colour in body.split("=\"#").skip(1).map(|rest| format!("#{}", &rest[..6])) {
            assert!(
                known.contains(&colour) || lines.contains(&colour),
                "{colour} stays as it is on a dark ground"
            );
        }
    }
}
