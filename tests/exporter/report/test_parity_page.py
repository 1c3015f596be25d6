"""The page of a parity check: casts, sizes and both answers, of steps and of one model."""

import re
from html import unescape

import pytest
from small_export import rows

from exporter import ExportError, ServingOptions, parity_page
from serving import EnsembleClient, TritonServer, check_parity


def section(page, title):
    """The cells below a heading, row by row."""
    part = page.partition(f"<h2>{title}</h2>")[2].partition("<h2>")[0]
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", part)
    return [
        [unescape(re.sub("<[^>]+>", "", c)) for c in re.findall(r"<td>(.*?)</td>", row)]
        for row in rows
    ]


@pytest.mark.xdist_group("end_to_end")
@pytest.mark.parametrize(
    "runtime", ["tensorflow", pytest.param("fused_onnx", marks=pytest.mark.long)]
)
def test_it_names_every_cast_and_size_and_shows_rows_side_by_side(export, workflow, model, runtime):
    made = export(serving=ServingOptions(runtime=runtime))
    with (
        TritonServer(made.repository, ["movies"]) as server,
        EnsembleClient(server.grpc_url, "movies") as client,
    ):
        assert repr(client) == f"EnsembleClient({server.grpc_url!r}, 'movies')"
        report = check_parity(client, workflow, model, rows())
        page = parity_page(client, report, rows().to_dict(as_series=False), made.repository)
        remote = parity_page(client, report, rows())
        with pytest.raises(ExportError, match=r"Received: .*movies.*, without a version"):
            parity_page(client, report, rows(), "no/such/repository")
    # What the workflow makes, and what the network's own inputs say.
    inputs = {tensor.name.removesuffix("__values"): tensor.dtype for tensor in model.inputs}
    types = {c.name: c.dtype for c in workflow.output_schema.columns if c.name in inputs}
    expected = [[n, dtype, inputs[n]] for n, dtype in types.items() if dtype != inputs[n]]
    assert expected
    assert sorted(section(page, "Casts")[1:]) == sorted(expected)
    sizes = {name: size for name, _, size in section(page, "Models")[1:]}
    assert sizes.keys() == {spec.name for spec in made.plan.models}
    assert all(re.fullmatch(r"[\d.]+ (bytes|kB|MB)", size) for size in sizes.values())
    assert "The sizes are not known here" in remote
    assert "bytes" not in "".join(map(str, section(remote, "Models")))
    # Nothing differs, and a reader still sees rows, raw and answered twice.
    worst = page.partition('class="worst"')[2].partition("</table>")[0]
    shown = [re.findall(r"<td>(.*?)</td>", row) for row in re.findall(r"<tr>(.*?)</tr>", worst)][1:]
    output = next(cells for cells in shown if cells[0] == report.outputs[-1].name)
    user = rows()["userId"][int(output[1])]
    assert f"<code>userId</code> <bdi>{'null' if user is None else user}</bdi>" in output[2]
    assert float(output[3]) == pytest.approx(float(output[4]), abs=1e-5)
