"""How the page looks: light and dark, on a phone, on paper. Pictures take their colours from the variables here.

The five colours of lines can be told apart by those who see few, and stand out from the paper as text does.
"""

STYLE = """
:root { color-scheme: light dark;
  --paper: #ffffff; --ink: #1c2024; --muted: #5b636b; --grid: #e3e6e9; --panel: #f6f7f8; --edge: #d5d9dd;
  --c1: #0067a6; --c2: #c2500a; --c3: #00805d; --c4: #a0428a; --c5: #806600; --warn: #8a4b00; --warn-panel: #fff4e0; }
@media screen and (prefers-color-scheme: dark) { :root {
  --paper: #14171a; --ink: #e8eaed; --muted: #a3abb3; --grid: #2c3136; --panel: #1c2024; --edge: #3a4046;
  --c1: #5cb3f0; --c2: #ff9a5c; --c3: #45cfa2; --c4: #e394cc; --c5: #e0c34f; --warn: #ffc069;
  --warn-panel: #33270f; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; text-size-adjust: 100%; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Helvetica Neue", Arial, sans-serif; }
main, header, footer { max-width: 62rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2.5rem; }
.over { margin: 0; color: var(--muted); font-size: .875rem; letter-spacing: .02em; }
h1 { margin: .15rem 0 .4rem; font-size: clamp(1.5rem, 1.1rem + 2vw, 2.1rem); line-height: 1.2;
  overflow-wrap: anywhere; }
.lead { text-wrap: pretty; margin: 0 0 1.25rem; font-size: 1.125rem; max-width: 48rem; }
h2 { margin: 2.75rem 0 .75rem; padding-top: .75rem; border-top: 1px solid var(--edge); font-size: 1.375rem; }
h3 { margin: 1.75rem 0 .5rem; font-size: 1.0625rem; }
p { max-width: 48rem; } p, h3, li, figcaption, summary, .features th { overflow-wrap: anywhere; }
a { color: var(--c1); }
nav ul, .keys, .inline, .plain { list-style: none; margin: 0; padding: 0; }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; font-size: .9375rem; }
.cards { display: grid; grid-template-columns: repeat(var(--across), minmax(0, 1fr)); gap: .75rem;
  margin: 0 0 1.25rem; }
.cards div { background: var(--panel); border: 1px solid var(--edge); border-radius: .5rem; padding: .6rem .8rem; }
.cards dt { color: var(--muted); font-size: .8125rem; }
.cards dd { margin: 0; font-size: 1.3125rem; font-weight: 600; font-variant-numeric: tabular-nums;
  overflow-wrap: anywhere; }
.facts { display: grid; grid-template-columns: minmax(7rem, max-content) minmax(0, 1fr); gap: .3rem 1.25rem;
  margin: 0 0 1rem; }
.facts dt { color: var(--muted); }
.facts dd { margin: 0; overflow-wrap: anywhere; }
.inline li { display: inline; } .inline li:not(:last-child)::after { content: ", "; white-space: pre; }
code, pre { font-family: ui-monospace, "SF Mono", "Cascadia Mono", Menlo, Consolas, monospace; font-size: .875em; }
pre { background: var(--panel); border: 1px solid var(--edge); border-radius: .5rem; padding: .8rem 1rem;
  overflow-x: auto; }
details { margin: .5rem 0; } summary { cursor: pointer; color: var(--c1); }
.warning { background: var(--warn-panel); color: var(--warn); border-left: .25rem solid currentColor;
  padding: .5rem .8rem;
  border-radius: .25rem; }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 25rem), 1fr)); gap: 1.25rem 2rem;
  align-items: start; margin: .75rem 0 1.25rem; }
.three { grid-template-columns: repeat(auto-fill, minmax(min(100%, 17rem), 1fr)); }
.gallery > * { max-width: 32rem; min-width: 0; }
figure { margin: 0; } figure h3 { margin: 0 0 .25rem; }
figure > svg { display: block; width: 100%; height: auto; overflow: visible; stroke-linejoin: round; }
figcaption { color: var(--muted); font-size: .875rem; max-width: 32rem; }
.keys { display: flex; flex-wrap: wrap; gap: .1rem 1rem; font-size: .875rem; margin: .2rem 0 .35rem; }
.keys small { color: var(--muted); }
.key { width: 1.6rem; height: .65rem; margin-right: .4rem; fill: none; stroke-width: 2.5; stroke-linecap: round; }
.scroll { overflow-x: auto; max-width: 100%; margin: .5rem 0 1.25rem; }
.scroll:focus-visible { outline: 2px solid var(--c1); outline-offset: 2px; }
table { border-collapse: collapse; font-size: .9375rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid var(--grid); }
th:first-child { text-align: left; padding-left: 0; } th { font-weight: 600; } tbody th { font-weight: 400; }
thead th { color: var(--muted); font-weight: 500; vertical-align: bottom; border-bottom-color: var(--edge); }
td { white-space: nowrap; } tbody th { overflow-wrap: anywhere; min-width: 6rem; }
.best th, .best td { font-weight: 700; background: var(--panel); }
.confusion td { min-width: 2.6rem; padding: .35rem .5rem; text-align: center; border: 1px solid var(--paper);
  background: color-mix(in srgb, var(--hue, transparent) var(--share, 0%), transparent); }
.confusion .right { --hue: var(--c1); } .confusion .wrong { --hue: var(--c2);
  } .confusion .none { color: var(--muted); }
.confusion thead th { text-align: center; } .confusion thead th:first-child { text-align: left; font-weight: 400; }
.panel { min-width: 0; } .features { width: 100%; table-layout: fixed; }
.features th:last-child, .features td { width: 6.5rem; } .features small { color: var(--muted); font-size: .75rem; }
.bar { display: block; height: .3rem; margin-top: .15rem; border-radius: .15rem; min-width: 1px; }
.positive { background: var(--c1); } .negative { background: var(--c2); }
footer { margin-top: 3rem; padding-top: 1rem; padding-bottom: 2.5rem; color: var(--muted); font-size: .875rem; }
@media (max-width: 40rem) {
  main, header, footer { padding-left: .9rem; padding-right: .9rem; } header { padding-top: 1.25rem; }
  .facts { grid-template-columns: minmax(0, 1fr); gap: 0; } .facts dd { margin-bottom: .5rem; }
  .facts dt { font-size: .875rem; } .cards { grid-template-columns: repeat(2, minmax(0, 1fr)); }
  th, td { padding: .3rem .5rem; } }
@media print {
  @page { margin: 14mm; }
  body { font-size: 10.5pt; } nav, summary::marker { display: none; }
  main, header, footer { max-width: none; padding-left: 0; padding-right: 0; } header { padding-top: 0; }
  figure, .cards div, tr, .panel, .facts dd { break-inside: avoid; } h2, h3 { break-after: avoid; }
  .gallery { grid-template-columns: 1fr 1fr; gap: 1rem 1.25rem; }
  .three { grid-template-columns: 1fr 1fr 1fr; } .scroll { overflow: visible; }
  table { font-size: 8.5pt; } th, td { padding: .2rem .4rem; }
  .confusion td, .bar, .cards div, .warning { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  details::details-content { content-visibility: visible; display: block; } pre { white-space: pre-wrap; } }
"""
