//! The report's looks.

pub(super) const CSS: &str = "
:root{--bg:#fbfbfa;--card:#fff;--ink:#1d2129;--soft:#646b78;--line:#e3e5e8;--good:#1a7f4b;
--bad:#c0392b;--s0:#33629c;--s1:#d97a1c;--s2:#3f8f5b;--s3:#8a4fa3;--s4:#b5403f;--s5:#5f7d8c;
--pub:#8b93a1}
@media(prefers-color-scheme:dark){:root{--bg:#15181d;--card:#1d2127;--ink:#e6e8eb;--soft:#9aa2ae;
--line:#31363e;--good:#5cc98d;--bad:#f07a6c;--s0:#7fb0ea;--s1:#f0a354;--s2:#7cc795;--s3:#c394da;
--s4:#ea8583;--s5:#9db8c5;--pub:#868e9b}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,
'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
main{max-width:1180px;margin:0 auto;padding:32px 24px 64px}
header{margin-bottom:20px}
.kicker{margin:0;color:var(--soft);font-size:13px;letter-spacing:.06em;text-transform:uppercase}
h1{margin:2px 0 4px;font-size:28px;line-height:1.2;font-weight:650}
h2{margin:36px 0 10px;font-size:19px;font-weight:650}
h3{margin:18px 0 8px;font-size:15px;font-weight:650}
.sub,.note{color:var(--soft);font-size:13px;margin:2px 0}
section>p{max-width:78ch}
code,pre{font:12.5px/1.45 ui-monospace,'DejaVu Sans Mono',Menlo,Consolas,monospace}
pre{margin:10px 0 0;color:var(--soft);white-space:pre-wrap;overflow-wrap:anywhere}
.card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:14px 16px}
.card h3{margin:0 0 4px}
.bad{border-color:var(--bad)}.bad h2{margin:0 0 6px;color:var(--bad)}
.big{margin:0;font-size:30px;font-weight:650;font-variant-numeric:tabular-nums}
.configurations,.plots{display:grid;gap:14px;margin-top:16px;
grid-template-columns:repeat(auto-fit,minmax(min(100%,350px),1fr))}
.plots{grid-template-columns:repeat(auto-fill,minmax(min(100%,520px),1fr))}
.dot{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:7px;
vertical-align:-1px}
.s0{background:var(--s0)}.s1{background:var(--s1)}.s2{background:var(--s2)}
.s3{background:var(--s3)}.s4{background:var(--s4)}.s5{background:var(--s5)}
.scroll{overflow-x:auto;background:var(--card);border:1px solid var(--line);border-radius:8px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:13px}
.scroll table{width:100%}
.figures th,.figures td{padding:4px 10px;text-align:right;white-space:nowrap}
.figures thead th{color:var(--soft);font-weight:600;border-bottom:1px solid var(--line)}
.figures thead tr.names th{border-bottom:0;color:var(--ink);padding-top:9px;text-align:center}
.figures tbody tr+tr td{border-top:1px solid var(--line)}
.figures tbody tr.block td{border-top:2px solid var(--soft)}
.figures .edge{border-left:1px solid var(--line)}
.figures .key{text-align:right;color:var(--soft)}
.figures .pct{font-weight:650}.figures .text{text-align:left}
.figures .published{color:var(--pub)}
.short td{vertical-align:top}.short td.text{white-space:normal}
.mark{color:var(--bad);font-weight:700;padding-left:2px}
.checks td,.checks th{padding:3px 14px 3px 0;text-align:left;vertical-align:top;font-weight:500}
.checks .text{color:var(--soft)}
.ok{color:var(--good);font-weight:650}.fail{color:var(--bad);font-weight:650}
.flags{font-size:13px;color:var(--soft);padding-left:20px}
svg{display:block;width:100%;height:auto}
svg text{fill:var(--soft);font:13px system-ui,'DejaVu Sans',sans-serif}
svg .grid{stroke:var(--line);stroke-width:1}
svg .line{fill:none;stroke-width:2;stroke-linejoin:round}
svg .pub{stroke-dasharray:4 3;stroke-width:1.5}
@media print{body{background:#fff}.card,.scroll{break-inside:avoid}}
";
